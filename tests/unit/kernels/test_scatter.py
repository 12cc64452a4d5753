"""Words written to places in the arena, against a dictionary of places."""

import numpy as np
import pytest

from adjoin.kernels.scatter import scatter_words

SLOTS, SLOT_BYTES = 7, 256
VIEWS = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}


@pytest.mark.parametrize("width", VIEWS)
@pytest.mark.parametrize("seed", range(8))
def test_words_are_at_their_places_and_nothing_else_changed(seed, width):
    """Slots and buffers begin anywhere; of two words for one place, the last one stays."""
    random = np.random.default_rng(seed)
    arena = random.integers(0, 256, (SLOTS + 1) * SLOT_BYTES).astype(np.uint8)
    base = 64 + random.permutation(SLOTS) * SLOT_BYTES
    offset = random.integers(0, SLOT_BYTES // 16, SLOTS) * 8
    room = (SLOT_BYTES - offset) // width
    count = int(random.integers(0, 200))
    slots = random.integers(0, SLOTS, count).astype(np.int32)
    rows = (random.random(count) * room[slots]).astype(np.int32)
    values = random.integers(0, 256, count * width).astype(np.uint8).view(VIEWS[width])
    wanted = arena.copy()
    for slot, row, value in zip(slots, rows, values, strict=True):
        begin = base[slot] + offset[slot] + row * width
        wanted[begin : begin + width] = np.frombuffer(value.tobytes(), np.uint8)
    scatter_words(arena.view(VIEWS[width]), base, offset, slots, rows, values)
    assert arena.tolist() == wanted.tolist()


def test_no_words_change_nothing():
    arena = np.arange(16, dtype=np.uint8)
    none = np.zeros(0, np.int32)
    scatter_words(arena, np.zeros(1, np.int64), np.zeros(1, np.int64), none, none, np.zeros(0, np.uint8))
    assert arena.tolist() == list(range(16))
