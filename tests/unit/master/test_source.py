from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from adjoin.errors import SchemaError
from adjoin.master.master import Master
from adjoin.master.source import open_source, split_decoded
from tests.unit.master.tables import multiset, products, rows_of

_LIMIT = 100_000


def _dictionary(array: pa.Array) -> pa.Array:
    return array.dictionary_encode()


def _short_and_long(rows: int) -> pa.Array:
    return pa.array([None if at % 7 == 0 else "z" * (5000 if at % 50 == 1 else 3) for at in range(rows)])


@pytest.mark.parametrize("encode", [_dictionary, pc.run_end_encode], ids=["dictionary", "run_ends"])
def test_encoded_columns_are_split_by_their_decoded_size(encode: Callable[[pa.Array], pa.Array]) -> None:
    plain = _short_and_long(4000)
    batch = pa.record_batch({"id": np.arange(4000), "text": encode(plain)}).slice(3)
    parts = list(split_decoded(batch, _LIMIT))
    assert len(parts) < 400
    for part in parts:
        assert plain.take(part["id"]).nbytes < 1.1 * _LIMIT
    source = open_source(batch, _LIMIT)
    assert pa.Table.from_batches(source.batches).equals(
        pa.table({"id": np.arange(3, 4000), "text": plain.slice(3)})
    )


@pytest.mark.parametrize("type_", [pa.dictionary(pa.int32(), pa.string()), pa.string_view()], ids=str)
def test_a_dictionary_larger_than_the_limit_does_not_force_single_rows(type_: pa.DataType) -> None:
    text = pa.array(["z" * 100 + str(at) for at in range(2000)]).cast(type_)
    batch = pa.record_batch({"id": np.arange(2000), "text": text})
    assert batch.slice(0, 1).nbytes > _LIMIT
    assert len(list(split_decoded(batch, _LIMIT))) <= 4


def test_a_dictionary_of_only_nulls() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([None] * 5, pa.int8()), pa.array([], pa.string()))
    assert sum(len(part) for part in split_decoded(pa.record_batch({"c": column}), _LIMIT)) == 5


def _reader(batch: pa.RecordBatch) -> pa.RecordBatchReader:
    schema = pa.schema([("id", pa.int64()), ("price", pa.int64())])
    return pa.RecordBatchReader.from_batches(schema, iter([batch]))


def test_columns_are_found_by_name_even_if_a_reader_reorders_them(tmp_path: Path) -> None:
    master = Master.build(_reader(pa.record_batch({"price": [100], "id": [1]})), "id", tmp_path / "m")
    assert rows_of(master).to_pylist() == [{"id": 1, "price": 100}]


@pytest.mark.parametrize("columns", [{"id": [1]}, {"id": [1], "price": [2], "more": [3]}], ids=str)
def test_a_reader_that_violates_its_own_schema_is_reported(columns: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="the source declares"):
        Master.build(_reader(pa.record_batch(columns)), "id", tmp_path / "m")


def test_dictionary_indices_may_have_different_widths(tmp_path: Path) -> None:
    table = products(200).set_column(1, "name", pa.array(["ink", "pen"] * 100))
    (tmp_path / "p").mkdir()
    for part, width in enumerate([pa.int8(), pa.int16()]):
        rows = table.slice(part * 100, 100)
        names = rows["name"].cast(pa.dictionary(width, pa.string()))
        pq.write_table(rows.set_column(1, "name", names), tmp_path / "p" / f"{part}.parquet")
    master = Master.build(tmp_path / "p", "id", tmp_path / "m")
    assert multiset(rows_of(master)) == multiset(table)


def test_a_dataset_of_some_row_groups_gives_only_their_rows(tmp_path: Path) -> None:
    pq.write_table(products(1000), tmp_path / "one.parquet", row_group_size=100)
    (fragment,) = ds.dataset(tmp_path / "one.parquet").get_fragments()
    chosen = fragment.subset(row_group_ids=[2, 5])
    source = ds.FileSystemDataset([chosen], fragment.physical_schema, fragment.format, fragment.filesystem)
    master = Master.build(source, "id", tmp_path / "m")
    assert multiset(rows_of(master)) == multiset(source.to_table())
