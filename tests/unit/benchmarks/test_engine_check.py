import numpy as np
import pyarrow as pa
import pytest

from benchmarks.engine import check, workload

KEYS = np.array([8, 0, 8, 2, 40], np.int64)


def collect(answer: pa.RecordBatch | pa.Table) -> check.Tally:
    tally = check.Tally()
    check.collect(tally, answer)
    return tally


def expected() -> check.Tally:
    tally = check.Tally()
    check.expect(tally, KEYS)
    return tally


def test_rows_in_any_order_and_chunking_are_accepted() -> None:
    order = np.array([3, 0, 4, 1, 2])
    pieces = [workload.rows_of(KEYS[order][:2]), workload.rows_of(KEYS[order][2:])]
    check.settle(expected(), collect(pa.Table.from_batches(pieces)))


def test_absent_keys_are_not_expected() -> None:
    tally = expected()
    check.expect(tally, np.array([1, 99], np.int64))
    assert tally == expected()


def test_a_sliced_answer_is_read_at_its_offset() -> None:
    longer = workload.rows_of(np.concatenate([[6, 4], KEYS]).astype(np.int64))
    check.settle(expected(), collect(longer.slice(2)))


@pytest.mark.parametrize("text_type", [pa.large_string(), pa.string_view()])
def test_strings_may_have_any_layout(text_type: pa.DataType) -> None:
    table = pa.Table.from_batches([workload.rows_of(KEYS)])
    check.settle(expected(), collect(table.set_column(3, "text", table["text"].cast(text_type))))


@pytest.mark.parametrize("keys", [KEYS[:-1], np.append(KEYS, 8), np.array([8, 0, 2, 2, 40])])
def test_missing_duplicated_and_swapped_rows_are_found(keys: np.ndarray) -> None:
    with pytest.raises(check.RowsDifferError):
        check.settle(expected(), collect(workload.rows_of(keys.astype(np.int64))))


@pytest.mark.parametrize("column", ["surrogate", "price", "text"])
def test_a_wrong_value_is_found_in_every_column(column: str) -> None:
    right = pa.Table.from_batches([workload.rows_of(KEYS)])
    position = right.column_names.index(column)
    with pytest.raises(check.RowsDifferError, match=column):
        collect(right.set_column(position, column, right[column].take(pa.array([1, 0, 2, 3, 4]))))


def test_a_missing_column_is_found() -> None:
    with pytest.raises(check.RowsDifferError, match="columns"):
        collect(workload.rows_of(KEYS).drop_columns(["price"]))
