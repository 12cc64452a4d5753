"""Metadata of pages with arbitrary bytes: buffers within the page are found, or none at all."""

import numpy as np
import pyarrow as pa
import pytest

from adjoin.kernels.pages import find_buffers
from adjoin.memory.page_columns import columns_of

_SLOTS, _SLOT = 3, 1
_GUARD_BYTES = 8192


def page_of(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """A page of three columns, and the ordinals of all its buffers."""
    batch = pa.record_batch(
        {"id": np.arange(rows), "name": [f"n{i}" for i in range(rows)], "x": [None] * rows}
    )
    message = np.frombuffer(batch.serialize(), np.uint8)
    page = np.zeros(-(-len(message) // 4096) * 4096, np.uint8)
    page[: len(message)] = message
    ordinals = sorted(ordinal for column in columns_of(batch.schema) for ordinal in column.all_buffers())
    return page, np.array(ordinals, np.int64)


def found(page: np.ndarray, wanted: np.ndarray, length: int | None = None) -> tuple[bool, np.ndarray, int]:
    """Search a page that lies between bytes that must not be read."""
    arena = np.full(len(page) + 2 * _GUARD_BYTES, 255, np.uint8)
    arena[_GUARD_BYTES : _GUARD_BYTES + len(page)] = page
    offsets, rows = np.zeros((len(wanted), _SLOTS), np.int32), np.zeros(_SLOTS, np.int32)
    length = len(page) if length is None else length
    words = arena.view(np.int64)
    is_whole = find_buffers(arena, words, _GUARD_BYTES, length, wanted, offsets, rows, _SLOT)
    assert not offsets[:, [0, 2]].any()
    assert not rows[[0, 2]].any()
    return is_whole, offsets[:, _SLOT], int(rows[_SLOT])


def test_the_buffers_of_an_intact_page_are_found():
    page, wanted = page_of(50)
    is_whole, offsets, rows = found(page, wanted)
    assert is_whole
    assert rows == 50
    assert (page[offsets[1] :].view(np.int64)[:50] == np.arange(50)).all()


@pytest.mark.parametrize("seed", range(20))
def test_buffers_lie_within_the_page_whatever_the_metadata_says(seed):
    random = np.random.default_rng(seed)
    page, wanted = page_of(50)
    metadata_bytes = 8 + int(page[4:8].view(np.int32)[0])
    refused = 0
    for _ in range(300):
        damaged = page.copy()
        for place in random.integers(0, metadata_bytes, random.integers(1, 4)):
            damaged[place] = random.choice([0, 1, 127, 128, 255, damaged[place] ^ 1 << random.integers(8)])
        is_whole, offsets, rows = found(damaged, wanted)
        assert ((offsets >= -1) & (offsets <= len(page))).all()
        assert rows >= 0
        refused += not is_whole
        assert is_whole or (rows == 0 and (offsets == -1).all())
    assert refused


@pytest.mark.parametrize("length", [0, 4, 8, 12, 100, 4096])
def test_a_page_that_is_shorter_than_its_message_is_refused(length):
    page, wanted = page_of(500)
    assert not found(page, wanted, length)[0]


@pytest.mark.parametrize("filling", [0, 1, 127, 128, 255])
def test_bytes_that_are_not_a_message_are_refused(filling):
    page, wanted = page_of(50)
    assert not found(np.full_like(page, filling), wanted)[0]


def test_a_buffer_that_the_page_does_not_have_is_refused():
    page, wanted = page_of(50)
    assert not found(page, np.array([*wanted, wanted[-1] + 1]))[0]


def test_a_page_without_rows_is_intact():
    """Its metadata does not contain the number of rows at all."""
    page, wanted = page_of(0)
    is_whole, _, rows = found(page, wanted)
    assert is_whole
    assert rows == 0
