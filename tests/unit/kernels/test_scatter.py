"""Values written to places in the arena, compared with plain NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoin.kernels.scatter import scatter_bits, scatter_wide, scatter_words

SLOTS, SLOT_BYTES, ROWS = 3, 256, 8
BASE = np.arange(SLOTS, dtype=np.int64) * SLOT_BYTES
OFFSET = np.array([0, 64, 128], np.int32)

places = st.lists(st.tuples(st.integers(0, SLOTS - 1), st.integers(0, ROWS - 1)), max_size=12, unique=True)


def split(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([slot for slot, _ in pairs], np.int32), np.array([row for _, row in pairs], np.int32)


def arena(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, SLOTS * SLOT_BYTES).astype(np.uint8)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.int64])
@given(pairs=places, seed=st.integers(0, 9))
def test_words_are_written_to_their_places_alone(dtype, pairs, seed):
    slots, rows = split(pairs)
    found, wanted = arena(seed).view(dtype), arena(seed).view(dtype)
    values = np.random.default_rng(seed + 1).integers(0, 100, len(pairs)).astype(dtype)
    wanted[(BASE[slots] + OFFSET[slots]) // wanted.itemsize + rows] = values
    scatter_words(found, BASE, OFFSET, slots, rows, values)
    assert found.tolist() == wanted.tolist()


@given(pairs=places, seed=st.integers(0, 9), width=st.integers(1, 16))
def test_wide_values_are_written_to_their_places_alone(pairs, seed, width):
    slots, rows = split(pairs)
    found, wanted = arena(seed), arena(seed)
    values = np.random.default_rng(seed + 1).integers(0, 256, (len(pairs), width)).astype(np.uint8)
    for slot, row, value in zip(slots, rows, values, strict=True):
        at = BASE[slot] + OFFSET[slot] + row * width
        wanted[at : at + width] = value
    scatter_wide(found, BASE, OFFSET, slots, rows, width, values.ravel())
    assert found.tolist() == wanted.tolist()


@given(pairs=places, seed=st.integers(0, 9), first=st.integers(0, 20))
def test_bits_are_written_to_their_places_alone(pairs, seed, first):
    slots, rows = split(pairs)
    bits = np.random.default_rng(seed + 1).integers(0, 2, first + len(pairs)).astype(np.uint8)
    found, wanted = arena(seed), np.unpackbits(arena(seed), bitorder="little")
    wanted[8 * (BASE[slots] + OFFSET[slots]) + rows] = bits[first:]
    packed = np.append(np.packbits(bits, bitorder="little"), np.uint8(0))
    scatter_bits(found, BASE, OFFSET, slots, rows, packed, first)
    assert np.unpackbits(found, bitorder="little").tolist() == wanted.tolist()
