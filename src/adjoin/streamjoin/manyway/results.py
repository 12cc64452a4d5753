"""Results: tuples of all relations side by side."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from adjoin.operators.portions import portions
from adjoin.streamjoin.manyway.matching import Match
from adjoin.streamjoin.manyway.spec import ManyInputs


class ManyResults:
    """Builds result batches of limited size.

    Args:
        spec: The join.
        limit_bytes: Size of a batch, unless a single row is larger.
    """

    def __init__(self, spec: ManyInputs, limit_bytes: int) -> None:
        self._spec = spec
        self._limit_bytes = limit_bytes

    def of(self, match: Match) -> Iterator[pa.RecordBatch]:
        """The results of matches with tuples of all relations."""
        shown = self._spec.shown
        sizes = sum(match.parts[number].sizes(names) for number, names in enumerate(shown) if names)
        for begin, end in portions(np.broadcast_to(sizes, match.size), self._limit_bytes):
            columns = [
                column
                for number, names in enumerate(shown)
                if names
                for column in match.parts[number].take(names, begin, end)
            ]
            yield self._spec.result(columns, end - begin)
