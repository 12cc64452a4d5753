"""Values written to (slot, row) places in the arena, the inverse of `gather`.

`offset[slot]` is where a buffer of a column begins in a slot, counted from `base[slot]`.
"""

import numpy as np

from adjoin.kernels.compiling import kernel
from adjoin.kernels.libc import memcpy
from adjoin.kernels.types import Array


@kernel
def scatter_bits(
    arena: Array, base: Array, offset: Array, slots: Array, rows: Array, bits: Array, first: int
) -> None:
    """Write one bit to each place, taken from `bits` starting at bit `first`."""
    for i in range(len(slots)):
        at = base[slots[i]] + offset[slots[i]] + (rows[i] >> 3)
        mask = np.uint8(1 << (rows[i] & 7))
        if (bits[(first + i) >> 3] >> ((first + i) & 7)) & 1:
            arena[at] |= mask
        else:
            arena[at] &= ~mask


@kernel
def scatter_words(arena: Array, base: Array, offset: Array, slots: Array, rows: Array, values: Array) -> None:
    """Write one value to each place; `arena` and `values` are views of the value's width (1, 2, 4 or 8)."""
    width = arena.itemsize
    for i in range(len(slots)):
        slot = slots[i]
        arena[(base[slot] + offset[slot]) // width + rows[i]] = values[i]


@kernel
def scatter_wide(
    arena: Array, base: Array, offset: Array, slots: Array, rows: Array, width: int, values: Array
) -> None:
    """Write `width` bytes to each place."""
    source = values.ctypes.data
    target = arena.ctypes.data
    for i in range(len(slots)):
        slot = slots[i]
        memcpy(target + base[slot] + offset[slot] + rows[i] * width, source + i * width, width)
