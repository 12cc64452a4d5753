"""Columns that joins of both families name alike."""

import pyarrow as pa
import pytest

from adjoin import OptionError, SchemaError
from adjoin.arrow.encodings import Orders
from adjoin.operators.on import (
    check_columns,
    check_distinct,
    chosen_columns,
    result_batch,
    result_schema,
    with_suffix,
)

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string())])


def test_a_name_that_is_taken_gets_the_suffix():
    assert with_suffix(SCHEMA.field("a"), ["a"], "_right").name == "a_right"
    assert with_suffix(SCHEMA.field("a"), ["b"], "_right").name == "a"


def test_columns_of_the_same_name_are_refused():
    check_distinct(SCHEMA, "the stream")
    with pytest.raises(SchemaError, match="the stream has several columns named 'a'; rename them"):
        check_distinct(pa.schema([*SCHEMA, SCHEMA.field("a")]), "the stream")


def test_a_missing_column_is_named_with_those_that_exist():
    check_columns(SCHEMA, ["b"], "the left input")
    with pytest.raises(SchemaError, match=r"the left input has no column 'c'; it has \['a', 'b'\]"):
        check_columns(SCHEMA, ["b", "c"], "the left input")


def test_two_results_of_the_same_name_are_refused_with_a_cure():
    with pytest.raises(SchemaError, match="two output columns would be named 'a'; choose another suffix="):
        result_schema([SCHEMA.field("a"), SCHEMA.field("a")], "choose another suffix=")


def test_chosen_columns_keep_the_order_of_the_schema():
    assert chosen_columns(["b", "a"], SCHEMA) == ["a", "b"]
    assert chosen_columns([], SCHEMA) == []
    for wrong in (["c"], "a", 1):
        with pytest.raises(OptionError, match="columns="):
            chosen_columns(wrong, SCHEMA)


def test_results_are_returned_in_the_declared_types():
    type_ = pa.dictionary(pa.int8(), pa.string())
    schema = result_schema([pa.field("d", type_)], "")
    batch = result_batch([pa.array(["x", "y", "x"])], schema, 3, Orders(), lambda number: (number,))
    assert batch.schema.field("d").type == pa.dictionary(pa.int32(), pa.string())
    assert batch.column("d").to_pylist() == ["x", "y", "x"]
    assert result_batch([], pa.schema([]), 3, Orders(), lambda number: (number,)).num_rows == 3
