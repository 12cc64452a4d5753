"""What a join does with its blocks on disk while nothing arrives: what the frame must know of it."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from adjoin.kernels.types import Array


class Reactive:
    """Joins blocks on disk, a unit of work at a time, and knows which tuples have met that way.

    This one does nothing: all blocks wait for the end.

    Attributes:
        is_interrupted: Whether a unit of work was begun and an error kept it from its end.
    """

    is_interrupted: bool = False

    def arrived(self, side: int, low: Array) -> None:
        """Tuples of this side, with these keys, came into memory."""

    def flushed(self, side: int, blocks: range) -> None:
        """These blocks were written."""

    def has_more(self) -> bool:
        """Whether there is something to do."""
        return False

    def work(self) -> Iterator[pa.RecordBatch]:
        """Do a unit of work, or the rest of one that was interrupted."""
        yield from ()

    def close(self) -> None:
        """Give back what was kept from one unit of work to the next."""

    def met_blocks(self, side: int, blocks: Array, other: int) -> Array | None:
        """Whether each of these blocks of a side has been joined with a block of the other; None: none."""

    def met_tuples(
        self, side: int, low: Array, arrived: Array, left: Array, other_left: Array
    ) -> Array | None:
        """Of pairs of tuples with the same key, whether they have met; None if none has.

        Args:
            side: Whose keys and moments come first.
            low: Key of each pair.
            arrived: The greater of the two arrivals.
            left: When the tuple of this side left.
            other_left: When the other tuple left.
        """

    def to_json(self) -> dict[str, Any]:
        """What must be known to go on."""
        return {}

    def restore(self, saved: dict[str, Any]) -> None:
        """Go on from what `to_json` said."""

    def check_invariants(self) -> None:
        """Raise AssertionError if something contradicts itself."""
