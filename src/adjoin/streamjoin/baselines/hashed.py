"""What joins have in common that find matches by hash: equality only, keys in an order by lot."""

from abc import abstractmethod
from typing import Any

import pyarrow as pa

from adjoin.arguments import whole_number
from adjoin.errors import OptionError
from adjoin.streamjoin.base.sizes import Reading
from adjoin.streamjoin.base.spec import Keyed, On
from adjoin.streamjoin.base.two_inputs import TwoInputJoin

_FAN_IN, _LEAST_FAN_IN = 10, 4
"""Of a merge in a memory that is not small, and in any: two groups can have a run of both sides each."""
_MORE_BLOCKS = 2


class HashedJoin(TwoInputJoin):
    """A join by equality in which neighbours in the index, and on disk, are those with near hashes.

    A key is scattered one to one, so that a range of scattered keys is a hash partition, and the index in
    the order of scattered keys holds every partition in one piece.
    """

    @abstractmethod
    def __init__(self, left: pa.Schema, right: pa.Schema, on: On, memory: int | str, **options: Any) -> None:
        super().__init__(left, right, on, memory, **options)
        if not self._spec.condition.is_equality:
            self.close()
            raise OptionError(
                f"{type(self).__name__} joins equal keys alone; DINER takes within= and between="
            )

    def _keyed(self, side: int, piece: pa.RecordBatch) -> Keyed:
        return super()._keyed(side, piece).scattered()


class MergingJoin(HashedJoin):
    """A hashed join that merges sorted runs on disk.

    Args:
        left: Schema of the left input.
        right: Schema of the right input.
        on: Key: a name, a list of names, or `{"left column": "right column"}`.
        memory: Budget of the whole operator.
        fan_in: Most runs that are merged at a time (F); by default 10, fewer in a small memory.
        **options: Those of `TwoInputJoin`, but for `within`, `between` and `max_outer`.
    """

    reading = Reading(copies=3)
    """What was read before: as it is, with a block more, and in order."""

    def __init__(
        self,
        left: pa.Schema,
        right: pa.Schema,
        on: On,
        memory: int | str = "64MB",
        *,
        fan_in: int | None = None,
        **options: Any,
    ) -> None:
        fan_in = None if fan_in is None else whole_number("fan_in", fan_in, 2)
        self._chosen_fan_in = fan_in
        if "max_outer" in options:
            raise OptionError("max_outer= is for DINER; this join takes fan_in=")
        most = _blocks_of_a_merge(fan_in or _FAN_IN)
        least = _blocks_of_a_merge(fan_in or _LEAST_FAN_IN)
        sizes = {"max_outer": most, "least_outer": least, "max_new": 0}
        super().__init__(left, right, on, memory, **{**sizes, **options})

    @property
    def _fan_in(self) -> int:
        return self._chosen_fan_in or self._sizes.max_outer - _MORE_BLOCKS

    def _condition(self) -> dict[str, Any]:
        return {**super()._condition(), "fan_in": self._fan_in}


def _blocks_of_a_merge(fan_in: int) -> int:
    """One of each run, and two more."""
    return max(fan_in, _LEAST_FAN_IN) + _MORE_BLOCKS
