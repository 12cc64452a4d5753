"""Rows in slots: what was put in is there until it leaves, and slots are given up when that is worth it."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adjoin.streamjoin.memory.row_store import RowsOfAnySize, RowsOfOneSize, row_store
from tests.conformance.values import random_column

FIXED = [
    pa.int64(),
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.binary(5),
    pa.binary(84),
    pa.decimal128(30, 4),
    pa.timestamp("us", "UTC"),
    pa.null(),
]
VARYING = [pa.string(), pa.list_(pa.int32()), pa.struct({"a": pa.int64(), "b": pa.string()})]
SLOT_BYTES = 4096


def drawn(schema, rows, random, null_share):
    columns = [random_column(field.type, rows, random, null_share) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


actions = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 150)),
        st.tuples(st.just("leave"), st.sampled_from([0.05, 0.4, 1.0])),
        st.tuples(st.just("close up"), st.just(0)),
    ),
    max_size=25,
)


@pytest.mark.parametrize("is_fixed", [True, False])
@given(data=st.data(), seed=st.integers(0, 999), items=actions)
@settings(max_examples=40)
def test_rows_stay_at_their_places(is_fixed, data, seed, items):
    types = data.draw(st.lists(st.sampled_from(FIXED), min_size=1, max_size=4))
    types += [] if is_fixed else [data.draw(st.sampled_from(VARYING))]
    schema = pa.schema([(f"c{number}", type_) for number, type_ in enumerate(types)])
    random = np.random.default_rng(seed)
    null_shares = iter(data.draw(st.lists(st.sampled_from([0.0, 0.0, 0.3]), min_size=25, max_size=25)))
    store = row_store(schema, 200, SLOT_BYTES)
    assert isinstance(store, RowsOfOneSize if is_fixed else RowsOfAnySize)
    there: dict[int, dict[str, Any]] = {}
    for what, amount in items:
        if what == "put":
            before = drawn(schema, 3, random, 0.5)
            rows = pa.concat_batches([before, drawn(schema, amount, random, next(null_shares))]).slice(3)
            there.update(zip(store.put(rows).tolist(), rows.to_pylist(), strict=True))
        elif what == "leave":
            gone = random.permutation(list(there))[: int(amount * len(there))].astype(np.int64)
            if len(gone):
                store.leave(gone)
            for place in gone.tolist():
                del there[place]
        else:
            close_up(store, there)
        place = np.array(sorted(there), np.int64)
        store.check_invariants(place)
        if len(place):
            assert store.rows_at(place).to_pylist() == [there[at] for at in place.tolist()]
    store.slots.close()


def close_up(store, there):
    slot = store.sparse_slot()
    if slot is None:
        return
    before = np.array(sorted(place for place in there if place >> 32 == slot), np.int64)
    rows, held_bytes = store.rows_at(before), store.held_bytes
    store.empty(slot)
    for old, new in zip(before.tolist(), store.put_densely(rows).tolist(), strict=True):
        there[new] = there.pop(old) if old != new else there[old]
    assert store.held_bytes <= held_bytes


def test_rows_of_one_size_take_the_holes_of_others():
    rows = pa.record_batch({"key": np.arange(1000), "text": pa.array([b"x" * 84] * 1000, pa.binary(84))})
    store = row_store(rows.schema, 100, SLOT_BYTES)
    places = store.put(rows)
    held_bytes = store.held_bytes
    assert store.sparse_slot() is None
    random = np.random.default_rng(1)
    for _ in range(5):
        gone = random.choice(places, 300, replace=False)
        store.leave(gone)
        assert store.sparse_slot() is not None
        assert store.new_bytes(np.full(300, 92)) == 0
        places = np.concatenate([np.setdiff1d(places, gone), store.put(rows.slice(0, 300))])
        assert store.held_bytes == held_bytes


def test_a_slot_is_filled_almost_completely():
    schema = pa.schema([("key", pa.int64()), ("text", pa.binary(92))])
    store = row_store(schema, 100, SLOT_BYTES)
    rows = drawn(schema, 40, np.random.default_rng(1), 0.0)
    assert set((store.put(rows) >> 32).tolist()) == {0}
