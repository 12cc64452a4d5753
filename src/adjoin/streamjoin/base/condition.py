"""What two rows must have in common to match: equal keys, near ones, or a key in an interval."""

from collections.abc import Sequence

import pyarrow as pa

from adjoin.arrow.copying import plain_schema
from adjoin.errors import OptionError
from adjoin.kernels.types import Array
from adjoin.keys.codec import KeyCodec
from adjoin.keys.predicate import Between, Bounds, Distance, Equality, Predicate, Within

LEFT, RIGHT = 0, 1


class Condition:
    """A row of the left has an interval of keys, a row of the right one key: they match where it lies in it.

    Args:
        right: The schema of the right.
        pairs: Columns of the left, each with one of the right: the key.
        within: The key is at most so far from that of the left.
        between: It is between these two columns of the left.

    Attributes:
        is_equality: Whether intervals are single keys.
        are_points: The same of each side.
    """

    def __init__(
        self,
        right: pa.Schema,
        pairs: Sequence[tuple[str, str]],
        within: Distance | None = None,
        between: tuple[str, str] | None = None,
    ) -> None:
        keys = tuple(key for _, key in pairs)
        self._codec = KeyCodec.of(plain_schema(right), keys)
        point = Equality(self._codec, keys)
        self._sides: tuple[Predicate, Predicate] = (self._interval(pairs, within, between), point)
        self._distance = within
        self.is_equality = self._sides[LEFT].is_equality
        self.are_points = (self.is_equality, True)

    def _interval(
        self, pairs: Sequence[tuple[str, str]], within: Distance | None, between: tuple[str, str] | None
    ) -> Predicate:
        if within is not None and between is not None:
            raise OptionError("give within= or between=, not both")
        if between is not None:
            return Between(self._codec, between)
        if within is not None:
            if len(pairs) > 1:
                raise OptionError(f"within={within!r} takes one key, on= names {len(pairs)}")
            return Within(self._codec, pairs[0][0], within)
        return Equality(self._codec, tuple(column for column, _ in pairs))

    def bounds(self, side: int, batch: pa.RecordBatch) -> Bounds:
        """Encoded lower and upper ends of rows in plain types, and which have any (None: all)."""
        low, high, valid = self._sides[side].bounds(batch)
        if not self.are_points[side]:
            valid = low <= high if valid is None else valid & (low <= high)
        return low, high, valid

    def columns(self, side: int) -> tuple[str, ...]:
        """The columns of a side that matter."""
        return self._sides[side].columns

    def attribute(self, side: int) -> tuple[object, ...]:
        """What a side's keys depend on: where this is the same for two conditions, so are the keys."""
        kind = type(self._sides[side]).__name__
        return kind, self.columns(side), self._codec.types, None if self.are_points[side] else self._distance

    @property
    def verifies(self) -> bool:
        """Whether a match of encoded keys is only a hint."""
        return not self._codec.ordered

    def same_keys(self, left: list[pa.Array], right: list[pa.Array]) -> Array:
        """Whether keys that were taken to be the same are."""
        return self._codec.same(self._codec.conform(left, exact=False), right)
