"""Progressive merge join: memory fills, is sorted and joined, and is written as a whole."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin.arrow.copying import plain_columns
from adjoin.arrow.row_sizes import row_bytes
from adjoin.streamjoin.base.condition import LEFT
from adjoin.streamjoin.base.spec import Keyed, On
from adjoin.streamjoin.base.two_inputs import TwoInputJoin
from adjoin.streamjoin.disk.idle_work import Reactive
from adjoin.streamjoin.memory.flush_policy import FlushPolicy, Leaving, Shortage

_STATE_BYTES = 32
"""Of a tuple as it is kept: moments and keys."""


class ProgressiveMergeJoin(TwoInputJoin):
    """Joins two streams in bounded memory, with results each time that memory is full.

    How it works: rows are kept as they come. When memory is full, what is there of both inputs is joined and
    written in the order of the keys. All else waits until both inputs have ended.

    Args:
        left: Schema of the left input.
        right: Schema of the right input.
        on: Key: a name, a list of names, or `{"left column": "right column"}`.
        memory: Budget of the whole operator.
        **options: Those of `TwoInputJoin` that do not concern reactive phases.

    Reference:
        Dittrich, Seeger, Taylor, Widmayer: Progressive Merge Join: A Generic and Non-blocking Sort-based Join
        Algorithm, VLDB 2002.

    Departures:
        - The memory is not divided in two halves: the inputs share it as they come.
        - What is left at the end is joined as in `DINER`, with blocks in the order of their keys; this reads
          every block about once, so that runs need not be merged first.
    """

    def __init__(
        self, left: pa.Schema, right: pa.Schema, on: On, memory: int | str = "64MB", **options: Any
    ) -> None:
        super().__init__(left, right, on, memory, **{"max_outer": 1, **options})
        self._have_met = False

    def _strategy(self) -> tuple[FlushPolicy, Reactive]:
        return _AllLeave(), Reactive()

    def _piece_rows(self, side: int, batch: pa.RecordBatch) -> int:
        """As many as one block holds: memory is full before a piece, or behind it."""
        some = plain_columns(batch.slice(0, super()._piece_rows(side, batch)))
        room = self._inputs[side].slots.room_bytes // 2
        return max(1, int(np.searchsorted(np.cumsum(row_bytes(some) + _STATE_BYTES), room, "right")))

    def _is_unfinished(self) -> bool:
        return super()._is_unfinished() or self._is_leaving

    @property
    def _is_leaving(self) -> bool:
        """Whether tuples are still in memory that have met all others there: the disk refused them."""
        return self._have_met and any(map(len, self._inputs))

    def _take_in(self, side: int, piece: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        rows = self._sorted(side, piece)
        stored = self._inputs[side].stored(rows.batch, np.zeros(len(rows), np.int64))
        is_empty = not any(map(len, self._inputs))
        if is_empty or (not self._is_leaving and self._kept.has_room_for(side, stored)):
            self._expect(side, rows.batch, [(rows.low, rows.high)])
            self._kept.catch_up()
            self._have_met = False
            return
        self._put_back(side, piece)
        yield from self._before_leaving()
        self._kept.make_room()

    def _cleanup(self) -> Iterator[pa.RecordBatch]:
        yield from self._before_leaving()
        yield from super()._cleanup()

    def _before_leaving(self) -> Iterator[pa.RecordBatch]:
        """Join all tuples in memory, unless that was done and none has come since."""
        if self._have_met:
            return
        tuples = self._inputs[LEFT]
        place, low, high = tuples.index.places(tuples.index.all())
        for begin in range(0, len(place), self._sizes.piece_rows):
            part = slice(begin, begin + self._sizes.piece_rows)
            rows = tuples.rows_at(place[part])
            yield from self._probe(LEFT, Keyed(rows, low[part], high[part]))
        self._have_met = True


class _AllLeave(FlushPolicy):
    def choose(self, shortage: Shortage) -> Iterator[Leaving]:
        for side, tuples in enumerate(shortage.inputs):
            while len(tuples):
                yield Leaving(side, tuples.index.lowest(shortage.rows[side]))
