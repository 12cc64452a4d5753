"""A writer that the file system refuses releases its locks, however long its error is kept."""

import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest

from adjoin.errors import OptionError, StorageError
from adjoin.master import files
from adjoin.master.master import Master
from adjoin.master.versions import Home
from tests.unit.master.tables import products


def _can_be_locked(home: Home) -> bool:
    lock = files.lock_file(home.lock_path, exclusive=True)
    if lock is not None:
        lock.release()
    return lock is not None


def _refuse(*_: object) -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_a_build_that_cannot_search_for_leftovers_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "m")
    home.create()
    (tmp_path / "m" / "data" / f"{'0' * 32}.arrow").write_bytes(b"of a build that was killed")
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", _refuse)
        with pytest.raises(StorageError) as kept:
            Master.build(products(10), "id", home.path)
    assert _can_be_locked(home), kept
    Master.build(products(10), "id", home.path).verify()


def test_a_writer_that_cannot_make_directories_does_not_block_vacuum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = Master.build(products(10), "id", tmp_path / "m")
    home = Home(master.path)
    (tmp_path / "m" / "tmp").rmdir()
    with monkeypatch.context() as patch:
        patch.setattr(os, "makedirs", lambda *_, **__: _refuse())
        with pytest.raises(StorageError) as kept:
            master.apply(pa.table({"_op": ["delete"], "id": [1]}))
    assert _can_be_locked(home), kept


def test_names_of_key_columns_are_validated(tmp_path: Path) -> None:
    key: object
    for key in ([["id"]], [None], 3, {"id": "id"}):
        with pytest.raises(OptionError, match="key="):
            Master.build(products(10), key, tmp_path / "m")  # type: ignore[arg-type]
