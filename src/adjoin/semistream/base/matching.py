"""Joining stream rows with pages in the arena: probe, verify, put out. Shared by all algorithms."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from adjoin.arrow.copying import take_rows
from adjoin.kernels.search import expand, probe_pages
from adjoin.kernels.types import Array
from adjoin.keys.predicate import Equality
from adjoin.memory.page_columns import Column, Places
from adjoin.operators.portions import portions
from adjoin.semistream.base.buffers import Rows
from adjoin.semistream.base.output import Output
from adjoin.semistream.base.spec import JoinSpec
from adjoin.semistream.pages.resident import Residence


class Matcher:
    """Joins needs (a stream row and a slot whose page may match it) and puts the result out.

    Args:
        spec: The join.
        pages: The pages in memory.
        keys: The real key columns, compared after a match where keys are hashed.
        output: Builds result batches.
        limit_pairs: Pairs handled at a time.
    """

    def __init__(
        self, spec: JoinSpec, pages: Residence, keys: list[Column], output: Output, limit_pairs: int
    ) -> None:
        self._spec = spec
        self._pages = pages
        self._codec = pages.master.codec
        self._arena = pages.arena
        self._columns = pages.columns
        self._key_buffer = pages.encoded_key.buffers[1]
        self._keys = keys
        self._output = output
        self._limit_pairs = limit_pairs

    def join(self, rows: Rows, need_row: Array, need_slot: Array) -> Iterator[pa.RecordBatch]:
        """Result batches of these needs; notes in `rows.matched` which rows have a match."""
        begin, count, bad = probe_pages(
            rows.low,
            rows.high,
            need_row,
            need_slot,
            self._arena.words,
            self._arena.slot_base,
            self._arena.rooms,
            self._columns.offset(self._key_buffer),
            self._columns.rows,
        )
        self._columns.require(bad)
        for batch in self._results(rows, need_row, need_slot, begin, count):
            self._pages.vouch(need_slot)
            yield batch
        self._pages.vouch(need_slot)  # for rows without a match as well

    def _results(
        self, rows: Rows, need_row: Array, need_slot: Array, begin: Array, count: Array
    ) -> Iterator[pa.RecordBatch]:
        if self._codec.ordered and not self._spec.gives_master_columns:
            found = np.flatnonzero(count)
            self._tell(rows, need_row[found], Places(need_slot[found], begin[found]))
            yield from self._found(rows, need_row[found])
            return
        for first, last in portions(count, self._limit_pairs):
            pairs = int(count[first:last].sum())
            if pairs == 0:
                continue
            owner, master_row = expand(begin[first:last], count[first:last], pairs)
            owner += first
            yield from self._pairs(rows, need_row[owner], Places(need_slot[owner], master_row))

    def _pairs(self, rows: Rows, stream_row: Array, places: Places) -> Iterator[pa.RecordBatch]:
        if not self._codec.ordered:
            same = self._same_keys(rows, stream_row, places)
            stream_row, places = stream_row[same], Places(places.slots[same], places.rows[same])
        self._tell(rows, stream_row, places)
        if self._spec.gives_master_columns:
            rows.matched[stream_row] = True
            yield from self._output.matched(rows, stream_row, places)
        else:
            yield from self._found(rows, stream_row)

    def _tell(self, rows: Rows, stream_row: Array, places: Places) -> None:
        if self._pages.observer is not None and len(stream_row):
            self._pages.observer(rows.low[stream_row], stream_row, places)

    def _same_keys(self, rows: Rows, stream_row: Array, places: Places) -> Array:
        assert isinstance(self._spec.predicate, Equality)
        key_columns = rows.batch.select(self._spec.predicate.columns)
        stream = self._spec.predicate.keys(take_rows(key_columns, stream_row))
        return self._codec.same(stream, [self._columns.take(key, places) for key in self._keys])

    def _found(self, rows: Rows, stream_row: Array) -> Iterator[pa.RecordBatch]:
        """Semi and anti join: a row counts once, however many master rows it matches."""
        new = np.unique(stream_row[~rows.matched[stream_row]])
        rows.matched[new] = True
        if self._spec.how == "semi":
            yield from self._output.alone(rows, new)
