"""What arriving rows are joined with, and which marks of tuples matter to them."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from adjoin.operators.portions import portions
from adjoin.streamjoin.base.parts import FlushPolicy
from adjoin.streamjoin.base.result_builder import Others, ResultBuilder
from adjoin.streamjoin.complete.pages import KEYLESS, MATCHED, NO_MARK
from adjoin.streamjoin.complete.spec import CompleteInputs
from adjoin.streamjoin.complete.storage import PagedStorage


class Setting(NamedTuple):
    """What rows are joined with.

    Attributes:
        spec: The join.
        storage: The tuples.
        results: Builds results.
        policy: Matches in memory are credited to it.
    """

    spec: CompleteInputs
    storage: PagedStorage
    results: ResultBuilder
    policy: FlushPolicy


def skipped_marks(spec: CompleteInputs, side: int) -> np.uint8:
    """Tuples of a side with one of these marks match nothing."""
    return (KEYLESS if spec.preserved[side] else NO_MARK) | (MATCHED if spec.leaves[side] else NO_MARK)


def alone(
    spec: CompleteInputs, side: int, others: Others, count: int, limit_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Tuples of a side as results of their own."""
    names = spec.alone(side)
    sizes = np.broadcast_to(others.sizes(names), count)
    for begin, end in portions(sizes, limit_bytes):
        yield spec.unpaired(side, others.take(names, begin, end), end - begin)
