import numpy as np
import pyarrow as pa
import pytest

from adjoin.arrow.row_sizes import message_overhead, row_bytes, without_neighbors
from tests.unit.master.tables import TYPE_NAMES, typed_column


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("name", TYPE_NAMES)
def test_the_bound_holds_for_every_slice_and_is_tight(name: str, nulls: bool) -> None:
    batch = pa.record_batch({"c": typed_column(name, 200, nulls=nulls)})
    bound, overhead = row_bytes(batch), message_overhead(batch.schema)
    assert bound.dtype == np.int64
    for start, stop in [(0, 1), (3, 4), (5, 77), (8, 200), (0, 200)]:
        actual = without_neighbors(batch.slice(start, stop - start)).serialize().size
        limit = int(bound[start:stop].sum()) + overhead
        assert actual <= limit
        assert limit <= actual + 200 + 2 * (stop - start)


def test_the_bounds_of_a_slice_are_those_of_its_rows() -> None:
    columns = {name: typed_column(name, 100, nulls=True) for name in TYPE_NAMES}
    batch = pa.record_batch(columns)
    assert row_bytes(batch.slice(13, 50)).tolist() == row_bytes(batch)[13:63].tolist()


def test_a_message_with_columns_of_every_type() -> None:
    batch = pa.record_batch({name: typed_column(name, 50, nulls=True) for name in TYPE_NAMES})
    assert without_neighbors(batch).serialize().size <= int(row_bytes(batch).sum()) + message_overhead(
        batch.schema
    )


def test_a_slice_without_items_is_serialized_without_the_items_of_others() -> None:
    lists = pa.array([[]] * 50 + [["x"] * 1000] * 50, pa.list_(pa.string()))
    batch = pa.record_batch({"c": lists}).slice(0, 50)
    assert without_neighbors(batch).equals(batch)
    assert without_neighbors(batch).serialize().size < 1000
