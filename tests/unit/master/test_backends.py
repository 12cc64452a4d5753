import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from adjoin.errors import OptionError
from adjoin.master import backends
from adjoin.master.apply import apply
from adjoin.master.backends import backend_for, register
from adjoin.master.build import build
from adjoin.master.master import Master


class Lists:
    """A backend for lists of integers."""

    def accepts(self, source: Any) -> bool:
        return isinstance(source, list)

    def build(self, source: Any, *arguments: Any) -> None:
        build(pa.table({"key": source}), *arguments)

    def apply(self, home: Any, base: Any, changes: Any, options: Any) -> int | None:
        return apply(home, base, pa.table({"_op": ["insert"] * len(changes), "key": changes}), options)

    def mover(self, page_bytes: int) -> None:
        return None


def test_rows_go_to_the_backend_that_accepts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match=r"source is a list; give .* a Spark DataFrame"):
        Master.build([1, 2], key="key", path=tmp_path / "m")
    monkeypatch.setattr(backends, "_backends", list(backends._backends))
    register(Lists())
    master = Master.build([1, 2], key="key", path=tmp_path / "m")
    assert master.apply([3]).rows == 3
    assert Master.build(pa.table({"key": [1]}), key="key", path=tmp_path / "arrow").rows == 1
    assert not isinstance(backend_for(pa.table({"key": [1]})), Lists)


def test_spark_is_not_imported_until_a_dataframe_is_given() -> None:
    program = "import adjoin, sys; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
