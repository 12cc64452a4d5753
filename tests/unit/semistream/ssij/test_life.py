"""An operator beside the rest of the program: pins, memory, files, dictionaries."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin import SSIJ, Master, OptionError, SchemaError, VersionNotFoundError
from tests.oracle import Predicate, assert_same_rows, expected

ROWS = 3000


def build(path: Any, **options: Any) -> Master:
    table = pa.table({"id": np.arange(ROWS), "name": [f"{n:060d}" for n in range(ROWS)]})
    return Master.build(table, key="id", path=path / "master", page_bytes=4096, **options)


def change(row: int, name: str) -> pa.Table:
    return pa.table({"id": [row], "name": [name], "_op": ["upsert"]})


def test_an_operator_holds_its_version_whatever_the_caller_does(tmp_path):
    master = build(tmp_path)
    join = SSIJ(master, on="id", memory="1MB")
    newer = master.apply(change(5, "new"))
    master.close()
    newer.vacuum(keep=1)
    list(join.push(pa.record_batch({"id": [5]})))
    assert [batch.column("name").to_pylist() for batch in join.finish()] == [[f"{5:060d}"]]
    join.close()
    newer.vacuum(keep=1)
    with pytest.raises(VersionNotFoundError):
        newer.at(1)


def test_after_refresh_the_old_version_can_go(tmp_path):
    master = build(tmp_path)
    join = SSIJ(master, on="id", memory="1MB")
    newer = master.apply(change(5, "new"))
    list(join.refresh(newer))
    master.close()
    newer.vacuum(keep=1)
    assert newer.versions() == [2]
    join.close()


def test_close_gives_the_memory_of_the_pages_back(tmp_path):
    join = SSIJ(build(tmp_path), on="id", memory="8MB")
    list(join.run([pa.record_batch({"id": np.arange(ROWS)})]))
    assert join.parts.pages.arena.bytes.any()
    join.close()
    assert not join.parts.pages.arena.bytes.any()


def test_a_row_swept_in_portions_is_no_cache_hit(tmp_path):
    master = build(tmp_path)
    join = SSIJ(master, on="id", memory=SSIJ.least_memory(master), between=("lo", "hi"))
    join.parts.pages.split.__dict__["work_bytes"] = 8 * 256
    batches = list(join.run([pa.record_batch({"lo": [0], "hi": [ROWS]})]))
    assert sum(batch.num_rows for batch in batches) == ROWS
    assert join.metrics()["cache_hits"] == 0


def test_pages_scattered_over_many_files_are_read_a_few_files_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("adjoin.semistream.pages.read_ahead._MOST_FILES", 10)
    monkeypatch.setattr("adjoin.semistream.pages.reader._MOST_OPEN_FILES", 12)
    master = build(tmp_path)
    for number in range(60):
        master = master.apply(change(number * 47, f"changed {number}"), keep=None)
    assert len(master.files) > 40
    join = SSIJ(master, on="id", memory="4MB")
    list(join.push(pa.record_batch({"id": np.arange(ROWS)})))
    seen = pa.Table.from_batches(list(join.idle(0)))
    assert len(join.parts.pages.reader._open.descriptors) <= 12 + 2 * 10
    names = dict(zip(seen["id"].to_pylist(), seen["name"].to_pylist(), strict=True))
    assert all(names[number * 47] == f"changed {number}" for number in range(60))
    assert len(names) == ROWS


@pytest.mark.parametrize("index", [pa.int8(), pa.int16(), pa.int32(), pa.int64()], ids=str)
def test_dictionaries_that_differ_from_batch_to_batch_come_out_whole(tmp_path, index):
    """More values in all than a narrow index can count: the result has a wider one."""
    table = pa.table({"id": np.arange(ROWS), "name": [f"{n:060d}" for n in range(ROWS)]})
    type_ = pa.dictionary(index, pa.string())
    batches = []
    for first in range(0, ROWS, 100):
        values = [f"word {n}" if n % 7 else None for n in range(first, first + 100)]
        column = pa.array(values).dictionary_encode()
        column = pa.DictionaryArray.from_arrays(column.indices.cast(index), column.dictionary)
        batches.append(pa.record_batch({"id": np.arange(first, first + 100), "word": column}))
    join = SSIJ(build(tmp_path), on="id", memory="1MB")
    result = pa.Table.from_batches(list(join.run(batches)))
    wider = type_ if index.bit_width >= 32 else pa.dictionary(pa.int32(), pa.string())
    assert result.schema.field("word").type == wider
    plain = result.set_column(1, "word", result["word"].cast(pa.string()))
    stream = pa.table({"id": np.arange(ROWS), "word": [f"word {n}" if n % 7 else None for n in range(ROWS)]})
    assert_same_rows(plain, expected(stream, table, Predicate("id"), "inner"))


def test_columns_come_in_the_order_asked_for(tmp_path):
    table = pa.table({"id": [1], "a": [2], "b": [3], "c": [4]})
    master = Master.build(table, key="id", path=tmp_path / "master")
    join = SSIJ(master, on="id", memory="1MB", columns=["c", "a"])
    assert join.schema_of(pa.schema({"id": pa.int64()})).names == ["id", "c", "a"]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"columns": "name"}, OptionError, "list of strings"),
        ({"between": "ab"}, OptionError, "list of strings"),
        ({"on": {"a": "id", "b": "id"}}, SchemaError, "must name the key"),
        ({"input_rows": "5"}, OptionError, "input_rows='5'"),
        ({"deadline": [1]}, OptionError, r"deadline=\[1\]"),
        ({"max_scan": 1.5}, OptionError, "max_scan=1.5"),
    ],
)
def test_what_is_no_list_or_number_is_refused(tmp_path, options, error, words):
    master = build(tmp_path)
    with pytest.raises(error, match=words):
        SSIJ(master, **{"on": "id", "memory": "1MB", **options})


def test_a_path_is_not_a_master(tmp_path):
    with pytest.raises(OptionError, match=r"Master\.open"):
        SSIJ(str(tmp_path), on="id")  # type: ignore[arg-type]
