"""The benchmark of two streams joined: its inputs, its check, its page."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.streamjoin import chains, report
from benchmarks.streamjoin.__main__ import TABLE
from benchmarks.streamjoin.chains import Chain
from benchmarks.streamjoin.contenders import CHAIN_CONTENDERS, CONTENDERS, Seen
from benchmarks.streamjoin.inputs import KINDS, Inputs, in_turn, open_table


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_give_about_one_result_per_row(kind: str, tmp_path: Path) -> None:
    inputs = Inputs(kind, 60_000, 1, tmp_path)
    left, right = (open_table(path) for path in inputs.paths())
    assert left.num_rows == right.num_rows == 60_000
    counts = [np.bincount(table["key"].to_numpy(), minlength=60_000) for table in (left, right)]
    assert (counts[0] * counts[1]).sum() == pytest.approx(60_000, rel=0.03)
    arrivals = list(in_turn(("left", "right"), inputs.paths()))
    assert [side for side, _ in arrivals] == ["left", "right", "left", "right"]


def test_all_contenders_find_the_same(tmp_path: Path) -> None:
    paths = Inputs("uniform", 20_000, 1, tmp_path).paths()
    assert len({_found(run, paths) for run in CONTENDERS.values()}) == 1


@pytest.mark.parametrize("kind", chains.KINDS)
def test_all_contenders_find_the_same_rows_in_a_chain(kind: str, tmp_path: Path) -> None:
    paths = Chain(kind, 8_000, 1, tmp_path).paths()
    found = {_found(run, paths) for run in CHAIN_CONTENDERS.values()}
    assert len(found) == 1
    ((rows, _),) = found
    assert rows == pytest.approx(8_000, rel=0.15)


def _found(run: Callable[..., dict[str, Any]], paths: tuple[Path, ...]) -> tuple[int, int]:
    outcome = run(paths, 64 << 20)
    return outcome["rows"], outcome["checksum"]


def test_the_page_compares_the_chains_at_every_tenth(tmp_path: Path) -> None:
    origin = {
        "run": "now",
        "commit": "c",
        "machine": "m",
        "seed": 1,
        "kind": "chain",
        "input_rows": 1_000_000,
    }
    same = {"repetition": 1, "memory_bytes": 1 << 26, "rows": 9, "peak_bytes": 1, "arriving_seconds": 2.0}
    rows = [
        {
            **origin,
            **same,
            "contender": name,
            "seconds": seconds,
            "early_rows": 4,
            "metrics": {"progress": progress},
        }
        for name, seconds, progress in (("MINER", 4.0, [1, 3, 4]), ("DINER cascade", 5.0, [2, 2, 2]))
    ]
    TABLE.replace(tmp_path / "streamjoin.csv", {"chain"}, rows)
    report.write(tmp_path / "streamjoin.csv", tmp_path / "streamjoin.md")
    page = (tmp_path / "streamjoin.md").read_text()
    assert "| 0.50 to 2.00 | above 1 | **missed** |" in page
    assert "| 0.80 | at most 1 | reached |" in page
    assert "| 2,000,000 |" in page


def test_the_sum_does_not_depend_on_the_order_but_on_the_pairs() -> None:
    def seen(left: list[int], right: list[int]) -> tuple[int, int]:
        result = Seen()
        result.take([pa.record_batch({"row": left, "row_right": right})])
        return result.rows, result.checksum

    assert seen([1, 2], [3, 4]) == seen([2, 1], [4, 3])
    assert seen([1, 2], [3, 4]) != seen([1, 2], [4, 3])


def test_the_page_says_what_was_reached(tmp_path: Path) -> None:
    origin = {
        "run": "now",
        "commit": "c",
        "machine": "m",
        "seed": 1,
        "kind": "uniform",
        "input_rows": 1_000_000,
    }
    rows = [
        {
            **origin,
            "contender": name,
            "repetition": 1,
            "memory_bytes": 1 << 26,
            "rows": 9,
            "peak_bytes": 1 << 27,
        }
        for name in ("DINER", "SymmetricHashJoin", "DuckDB")
    ]
    rows[0] |= {"seconds": 8.0, "arriving_seconds": 1.0, "early_rows": 3}
    rows[1] |= {"seconds": 3.0, "arriving_seconds": 1.0, "early_rows": 9}
    rows[2] |= {"seconds": 2.0}
    TABLE.replace(tmp_path / "streamjoin.csv", {"uniform"}, rows)
    report.write(tmp_path / "streamjoin.csv", tmp_path / "streamjoin.md")
    page = (tmp_path / "streamjoin.md").read_text()
    assert "| 4.00 | at most 3 | **missed** |" in page
    assert "| 2,000,000 | 1,000,000 | reached |" in page
    assert "| 0.333 |" in page
