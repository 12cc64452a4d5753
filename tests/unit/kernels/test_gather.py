"""Values copied from undecoded pages, compared with what pyarrow reads from the same pages."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoin.kernels.pages import find_buffers
from adjoin.memory.arena import Arena
from adjoin.memory.page_columns import PageColumns, Places, columns_of
from tests.conformance.values import random_column

TYPES = [
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float16(),
    pa.bool_(),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.large_binary(),
    pa.binary(5),
    pa.decimal128(30, 4),
    pa.decimal256(50, 3),
    pa.timestamp("us", "UTC"),
    pa.list_(pa.int32()),
    pa.large_list(pa.string()),
    pa.list_(pa.string(), 3),
    pa.struct({"a": pa.int64(), "b": pa.list_(pa.string())}),
    pa.list_(pa.list_(pa.struct({"x": pa.bool_(), "y": pa.string()}))),
    pa.map_(pa.string(), pa.int16()),
    pa.null(),
]


def landed(batches, columns):
    """An arena with each batch as a page in its own slot."""
    messages = [np.frombuffer(batch.serialize(), np.uint8) for batch in batches]
    slot_bytes = -(-max(map(len, messages)) // 4096) * 4096
    arena = Arena(len(messages), 0, slot_bytes, 0, 4096)
    pages = PageColumns(arena, columns)
    for slot, message in enumerate(messages):
        base = int(arena.slot_base[slot])
        arena.bytes[base : base + len(message)] = message
        found = pages.wanted[0], pages.offsets, pages.rows
        assert find_buffers(arena.bytes, arena.words, base, len(message), *found, slot)
    return pages


@pytest.mark.parametrize("kind", TYPES, ids=str)
@given(data=st.data())
def test_copied_values_are_those_of_the_pages(kind, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    sizes = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=4))
    null_share = data.draw(st.sampled_from([0.0, 0.2, 1.0]))
    values = [random_column(kind, rows, rng, null_share) for rows in sizes]
    batches = [pa.record_batch({"pad": np.arange(len(value)), "value": value}) for value in values]
    columns = columns_of(batches[0].schema)
    pages = landed(batches, columns)
    count = data.draw(st.integers(0, 60))
    slots = rng.integers(0, len(sizes), count).astype(np.int32)
    rows = (rng.random(count) * np.array(sizes)[slots]).astype(np.int32)
    places = Places(slots, rows)
    taken = pages.take(columns[1], places)
    taken.validate(full=True)
    starts = np.cumsum([0, *sizes])[slots]
    wanted = pa.chunked_array(values).combine_chunks().take(pa.array(starts + rows))
    assert taken.equals(wanted) or str(taken) == str(wanted)
    assert pages.rows[: len(sizes)].tolist() == sizes
    size = np.broadcast_to(pages.value_bytes(columns[1], places), count).sum()
    assert size >= taken.nbytes - 16 - count // 4
    cut = data.draw(st.integers(0, count))
    parts = [pages.take(columns[1], places.slice(*span)) for span in ((0, cut), (cut, count))]
    assert pa.concat_arrays(parts).equals(taken) or str(pa.concat_arrays(parts)) == str(taken)
