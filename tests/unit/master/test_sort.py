import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adjoin.errors import StorageError
from adjoin.master import files
from adjoin.master.sort import ExternalSorter, Run
from adjoin.master.source import split

_SCHEMA = pa.schema([("key", pa.int64()), ("place", pa.int64()), ("text", pa.large_string())])


def _sorter(path: Path, memory: int) -> ExternalSorter:
    numbers = itertools.count()
    return ExternalSorter(lambda: str(path / f"{next(numbers)}.run"), _SCHEMA, "key", memory)


@settings(max_examples=25)
@given(
    sizes=st.lists(st.integers(1, 900), min_size=1, max_size=30),
    space=st.sampled_from([2, 50, 1 << 40]),
    memory=st.sampled_from([1 << 12, 1 << 15, 1 << 18]),
    seed=st.integers(0, 1 << 20),
)
def test_the_result_is_that_of_a_stable_sort(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], space: int, memory: int, seed: int
) -> None:
    path = tmp_path_factory.mktemp("sort")
    draw = np.random.default_rng(seed)
    keys = draw.integers(-space, space, sum(sizes))
    table = pa.table(
        {
            "key": keys,
            "place": np.arange(len(keys)),
            "text": ["t" * int(n) for n in draw.integers(0, 90, len(keys))],
        },
        schema=_SCHEMA,
    )
    sorter = _sorter(path, memory)
    start = 0
    for size in sizes:
        sorter.add(pa.concat_batches(table.slice(start, size).to_batches()))
        start += size
    got = pa.Table.from_batches(sorter.sorted(), _SCHEMA)
    assert got.equals(table.take(pa.array(np.argsort(keys, kind="stable"))))
    assert sorter.rows == table.num_rows
    sorter.close()
    assert list(path.iterdir()) == []


def test_long_rows_are_merged_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a block of every run in memory, forty rows of 300 KiB would exceed the 4 MiB of memory."""
    widths = []
    merge = ExternalSorter._merge

    def noted(sorter: ExternalSorter, runs: list[Run]) -> Iterator[pa.RecordBatch]:
        widths.append(len(runs))
        return merge(sorter, runs)

    monkeypatch.setattr(ExternalSorter, "_merge", noted)
    sorter = _sorter(tmp_path, 4 << 20)
    for key in range(40, 0, -1):
        columns = {"key": [key], "place": [key], "text": pa.array(["t" * (300 << 10)], pa.large_string())}
        sorter.add(pa.record_batch(columns))
    assert [key for batch in sorter.sorted() for key in batch["key"].to_pylist()] == list(range(1, 41))
    assert max(widths) == 2


def test_sorting_no_rows_gives_no_rows(tmp_path: Path) -> None:
    assert list(_sorter(tmp_path, 1 << 20).sorted()) == []


def test_a_failing_merge_leaves_no_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sorter = _sorter(tmp_path, 1 << 12)
    for _ in range(40):
        keys = pa.array(range(200), pa.int64())
        sorter.add(pa.record_batch([keys, keys, pa.array(["t"] * 200, pa.large_string())], schema=_SCHEMA))

    def refuse(*_: object) -> None:
        raise StorageError("full")

    monkeypatch.setattr(files.NewFile, "write", refuse)
    with pytest.raises(StorageError):
        list(sorter.sorted())
    monkeypatch.undo()
    sorter.close()
    assert list(tmp_path.iterdir()) == []


def test_split_gives_all_rows_in_slices_of_bounded_size() -> None:
    batch = pa.record_batch({"t": ["x" * (number % 97) for number in range(1000)]})
    parts = list(split(batch, 2000))
    assert pa.concat_batches(parts).equals(batch)
    assert all(part.nbytes <= 2000 or part.num_rows == 1 for part in parts)
    assert list(split(batch.slice(0, 0), 2000)) == []
