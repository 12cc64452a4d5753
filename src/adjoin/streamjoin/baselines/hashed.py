"""What joins that match by hash share: equal keys only, in a scattered order; and merges of runs."""

from collections.abc import Sequence

import pyarrow as pa

from adjoin.arguments import whole_number
from adjoin.errors import OptionError
from adjoin.keys.predicate import Distance
from adjoin.operators.on import On
from adjoin.streamjoin.base.sizes import ReactiveMemory
from adjoin.streamjoin.base.spec import TwoInputs
from adjoin.streamjoin.base.storage import Storage

_FAN_IN, _LEAST_FAN_IN = 10, 4
"""Of a merge, unless memory is small; and the least: two groups can have a run of both sides each."""
_MORE_BLOCKS = 2
MERGE_MEMORY = ReactiveMemory(copies=3)
"""What a merge keeps of the blocks it has read: as they are, with a block more, and in order."""


def hashed_inputs(
    operator: str,
    left: pa.Schema,
    right: pa.Schema,
    on: On,
    within: Distance | None,
    between: tuple[str, str] | None,
    suffix: str,
    columns: Sequence[str] | None,
) -> TwoInputs:
    """The join of equal keys, which are scattered one to one.

    A range of scattered keys is a hash partition, and an index in their order holds every partition in one
    piece.
    """
    if within is not None or between is not None:
        raise OptionError(f"{operator} matches equal keys only; use DINER for within= and between=")
    return TwoInputs(left, right, on, suffix=suffix, columns=columns, scatters=True)


def checked_fan_in(fan_in: int | None, max_outer: int | None) -> int | None:
    """The `fan_in=` of a join that merges, and has no outer blocks."""
    if max_outer is not None:
        raise OptionError("max_outer= is for DINER; this join takes fan_in=")
    return None if fan_in is None else whole_number("fan_in", fan_in, 2)


def merge_blocks(fan_in: int | None) -> tuple[int, int]:
    """How many blocks a merge reads at a time: at most, and at least in a small memory."""
    wanted, least = fan_in or _FAN_IN, fan_in or _LEAST_FAN_IN
    return max(wanted, _LEAST_FAN_IN) + _MORE_BLOCKS, max(least, _LEAST_FAN_IN) + _MORE_BLOCKS


def fan_in_of(storage: Storage, fan_in: int | None) -> int:
    """The fan-in that was chosen, or the one for which there is memory."""
    return fan_in or storage.sizes.max_outer - _MORE_BLOCKS
