"""Progressive merge join: memory fills, is sorted and joined, and is written as a whole."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from adjoin.arrow.copying import plain_columns
from adjoin.arrow.row_sizes import row_bytes
from adjoin.keys.predicate import Distance
from adjoin.master.device import Cost
from adjoin.operators.clock import Clock
from adjoin.operators.on import On
from adjoin.streamjoin.base.contract import SpillOptions
from adjoin.streamjoin.base.parts import FlushPolicy, Leaving, ReactiveWork, Shortage
from adjoin.streamjoin.base.phases import Placement, SpillingJoin
from adjoin.streamjoin.base.spec import LEFT, TwoInputs
from adjoin.streamjoin.base.storage import Storage
from adjoin.streamjoin.twoway.pair_join import PairJoin

_STATE_BYTES = 32
"""Of a stored tuple: moments and keys."""


class ProgressiveMergeJoin(SpillingJoin):
    """Joins two streams in bounded memory, with results each time memory is full.

    How it works: see `SpillingJoin` for the phases, but rows are kept without being joined. When memory is
    full, the tuples of both inputs are joined with each other and all written, in the order of their keys.
    Everything else is left to the cleanup phase.

    Args:
        left: Schema of the left input.
        right: Schema of the right input.
        on: Key: a name, a list of names, or `{"left column": "right column"}`.
        memory: Budget of the whole operator: bytes, or a string such as "64MB".
        within: Band join: right key between left key - within and left key + within.
        between: Range join: right key between these two left columns; `on` names the right key.
        suffix: Appended to a right column whose name the left has too.
        columns: Columns to keep in the results, whose order does not change; all by default.
        block_bytes, max_outer, least_outer, max_new, wait_seconds, spill, clock, disk: See `SpillOptions`.

    Reference:
        Dittrich, Seeger, Taylor, Widmayer: Progressive Merge Join: A Generic and Non-blocking Sort-based Join
        Algorithm, VLDB 2002.

    Departures:
        - The memory is not divided in two halves: the inputs share it as they arrive.
        - The cleanup phase is that of `DINER`, with blocks in the order of their keys; it reads every block
          about once, so that runs need not be merged first.
    """

    def __init__(
        self,
        left: pa.Schema,
        right: pa.Schema,
        on: On,
        memory: int | str = "64MB",
        *,
        within: Distance | None = None,
        between: tuple[str, str] | None = None,
        suffix: str = "_right",
        columns: Sequence[str] | None = None,
        block_bytes: int | None = None,
        max_outer: int | None = 1,
        least_outer: int | None = None,
        max_new: int = 1000,
        wait_seconds: float = 0.025,
        spill: str | Path | None = None,
        clock: Clock | None = None,
        disk: Cost | None = None,
    ) -> None:
        spec = TwoInputs(left, right, on, within, between, suffix, columns)
        options = SpillOptions(
            memory, block_bytes, max_outer, least_outer, max_new, wait_seconds, spill, clock, disk
        )
        storage = Storage(spec, options)
        super().__init__(spec, storage, PairJoin(spec, storage), _AllLeave(), ReactiveWork())
        self._have_met = False

    def _piece_rows(self, side: int, batch: pa.RecordBatch) -> int:
        """As many as one block holds: memory is full before a piece or after it."""
        some = plain_columns(batch.slice(0, super()._piece_rows(side, batch)))
        room = self._storage.inputs[side].slots.room_bytes // 2
        return max(1, int(np.searchsorted(np.cumsum(row_bytes(some) + _STATE_BYTES), room, "right")))

    def _is_unfinished(self) -> bool:
        return super()._is_unfinished() or self._is_leaving

    @property
    def _is_leaving(self) -> bool:
        """Whether the tuples in memory have been joined with each other, but the disk refused them."""
        return self._have_met and self._storage.has_tuples

    def _arrive(self, side: int, piece: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Keep rows while there is room; then join what is in memory, and write all of it."""
        rows, keys = self._spec.keyed(side, piece)
        sizes = row_bytes(self._storage.inputs[side].stored(rows, np.zeros(rows.num_rows, np.int64)))
        has_room = not self._is_leaving and self._storage.has_room(side, sizes)
        if has_room or not self._storage.has_tuples:
            self._place(Placement(side, self._storage.stamped(side, rows), keys))
            self._have_met = False
            return
        self._put_back(side, piece)
        yield from self._before_flush()
        self._flush()

    def _cleanup_phase(self) -> Iterator[pa.RecordBatch]:
        yield from self._before_flush()
        yield from super()._cleanup_phase()

    def _before_flush(self) -> Iterator[pa.RecordBatch]:
        """Join all tuples in memory, unless that was done and none has arrived since."""
        if self._have_met:
            return
        tuples, piece_rows = self._storage.inputs[LEFT], self._storage.sizes.piece_rows
        place, low, high = tuples.index.places(tuples.index.all())
        for begin in range(0, len(place), piece_rows):
            part = slice(begin, begin + piece_rows)
            yield from self._probe(LEFT, tuples.rows_at(place[part]), [(low[part], high[part])])
        self._have_met = True


class _AllLeave(FlushPolicy):
    def choose(self, shortage: Shortage) -> Iterator[Leaving]:
        for side, tuples in enumerate(shortage.inputs):
            while len(tuples):
                yield Leaving(side, tuples.index.lowest(shortage.rows[side]))
