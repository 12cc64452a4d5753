"""How stream rows are answered: compared with master rows, verified, put into result batches, counted."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from adjoin.arrow.copying import can_be_taken, no_rows, plain_columns, take_rows
from adjoin.arrow.encodings import Orders, declared_values
from adjoin.arrow.row_sizes import can_be_measured, fixed_row_bytes, sizes_of
from adjoin.errors import SchemaError
from adjoin.kernels.search import expand, probe_pages
from adjoin.kernels.types import Array
from adjoin.keys.codec import KeyCodec
from adjoin.keys.predicate import Equality
from adjoin.memory.page_columns import Column, PageColumns, Places
from adjoin.operators.clock import Clock
from adjoin.operators.portions import portions
from adjoin.semistream.base.buffers import Arrivals, Rows
from adjoin.semistream.base.spec import JoinSpec
from adjoin.semistream.pages.resident import ResidentPages


@dataclass
class AnswerCounts:
    """What has happened to stream rows since the start."""

    cache_hits: int = 0
    rows_unmatched: int = 0
    seconds_waiting_max: float = 0.0


class Answerer:
    """Turns arrivals into rows with keys, and finished rows into results.

    Args:
        spec: The join specification.
        pages: The resident pages.
        clock: Tells the time.

    Attributes:
        counts: What has happened to rows since the start.
        matcher: Joins rows with pages; there is one once the schema of the stream is known.
    """

    matcher: "Matcher"

    def __init__(self, spec: JoinSpec, pages: ResidentPages, clock: Clock) -> None:
        self._spec = spec
        self._pages = pages
        self._clock = clock
        self.counts = AnswerCounts()

    def begin(self, stream: pa.Schema) -> None:
        """Prepare for rows with this schema, against the master version that is in memory."""
        pages, split = self._pages, self._pages.split
        schema = self._spec.output_schema(stream, pages.master.schema)
        for field in stream:
            if not can_be_taken(field.type) or not can_be_measured(field.type):
                raise SchemaError(
                    f"unsupported type {field.type} for column {field.name!r} of the stream; cast it to "
                    "numbers, strings, lists or structs"
                )
        self._spec.predicate.bounds(plain_columns(no_rows(stream)))
        layout = [pages.column(name) for name in self._spec.columns]
        keys = [pages.column(name) for name in self._spec.verified]
        output = Output(schema, pages.columns, layout, split.output_bytes, self._spec.orders)
        check = KeyCheck(self._spec, pages.master.codec, pages.columns, keys)
        self.matcher = Matcher(self._spec, pages, check, output, split.step_rows)

    def rows_of(self, arrived: Arrivals) -> tuple[Rows, Array | None]:
        """The rows with the keys they match, and which of them can match at all (None: every one)."""
        low, high, valid = self._spec.predicate.bounds(arrived.batch)
        unmatched = np.zeros(len(low), bool)
        sizes = sizes_of(arrived.batch)
        return Rows(arrived.batch, arrived.arrived, arrived.due, low, high, unmatched, sizes), valid

    def finish(self, rows: Rows, chosen: Array, arrived: float | None = None) -> Iterator[pa.RecordBatch]:
        """These rows are finished: emit those without a match if the join keeps them, and count.

        Args:
            rows: The rows.
            chosen: Which of them are finished.
            arrived: When the first of the chosen rows arrived, if that is known better.
        """
        if len(chosen) == 0:
            return
        unmatched = chosen[~rows.matched[chosen]]
        self.counts.rows_unmatched += len(unmatched)
        if self._spec.keeps_unmatched and len(unmatched):
            yield from self.matcher.output.alone(rows, unmatched)
        waited = self._clock.now() - (rows.arrived if arrived is None else arrived)
        self.counts.seconds_waiting_max = max(self.counts.seconds_waiting_max, waited)


class Matcher:
    """Joins stream rows with pages in memory.

    A need is a stream row and a slot whose page may match it.

    Args:
        spec: The join specification.
        pages: The resident pages.
        check: Compares the real keys, where encoded keys are hashes.
        output: Builds result batches.
        most_pairs: The most pairs handled at a time.
    """

    def __init__(
        self, spec: JoinSpec, pages: ResidentPages, check: "KeyCheck", output: "Output", most_pairs: int
    ) -> None:
        self._spec = spec
        self._pages = pages
        self._arena = pages.arena
        self._columns = pages.columns
        self._key_buffer = pages.encoded_key.buffers[1]
        self._check = check
        self._most_pairs = most_pairs
        self.output = output

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
        if self._check.is_exact and not self._spec.gives_master_columns:
            found = np.flatnonzero(count)
            self._tell(rows, need_row[found], Places(need_slot[found], begin[found]))
            yield from self._found(rows, need_row[found])
            return
        for first, last in portions(count, self._most_pairs):
            pairs = int(count[first:last].sum())
            if pairs == 0:
                continue
            owner, master_row = expand(begin[first:last], count[first:last], pairs)
            owner += first
            yield from self._pairs(rows, need_row[owner], Places(need_slot[owner], master_row))

    def _pairs(self, rows: Rows, stream_row: Array, places: Places) -> Iterator[pa.RecordBatch]:
        if not self._check.is_exact:
            stream_row, places = self._check.equal(rows.batch, stream_row, places)
        self._tell(rows, stream_row, places)
        if self._spec.gives_master_columns:
            rows.matched[stream_row] = True
            yield from self.output.matched(rows, stream_row, places)
        else:
            yield from self._found(rows, stream_row)

    def _tell(self, rows: Rows, stream_row: Array, places: Places) -> None:
        if self._pages.observer is not None and len(stream_row):
            self._pages.observer(rows.low[stream_row], stream_row, places)

    def _found(self, rows: Rows, stream_row: Array) -> Iterator[pa.RecordBatch]:
        """Semi and anti join: a row counts once, however many master rows it matches."""
        new = np.unique(stream_row[~rows.matched[stream_row]])
        rows.matched[new] = True
        if self._spec.how == "semi":
            yield from self.output.alone(rows, new)


class KeyCheck:
    """Compares the keys of stream rows with those of master rows, where equal codes may be different keys.

    Args:
        spec: The join specification.
        codec: How keys are encoded.
        columns: Where the master rows lie.
        keys: The key columns among them.

    Attributes:
        is_exact: Whether equal codes are equal keys, so that there is nothing to compare.
    """

    def __init__(self, spec: JoinSpec, codec: KeyCodec, columns: PageColumns, keys: list[Column]) -> None:
        self._spec = spec
        self._codec = codec
        self._columns = columns
        self._keys = keys
        self.is_exact = codec.ordered

    def equal(self, batch: pa.RecordBatch, stream_row: Array, places: Places) -> tuple[Array, Places]:
        """Those of the pairs of a stream row and a master row whose keys are equal."""
        assert isinstance(self._spec.predicate, Equality)
        key_columns = batch.select(self._spec.predicate.columns)
        stream = self._spec.predicate.keys(take_rows(key_columns, stream_row))
        same = self._codec.same(stream, [self._columns.take(key, places) for key in self._keys])
        return stream_row[same], places.choose(same)


class Output:
    """Builds result batches of limited size: the stream's columns, then the master's.

    Args:
        schema: The schema of the results.
        columns: The master's columns in memory.
        layout: Those of them that are emitted.
        limit_bytes: The most bytes of a batch, unless a single row is larger.
        orders: The order of ordered dictionaries in the stream.
    """

    def __init__(
        self,
        schema: pa.Schema,
        columns: PageColumns,
        layout: list[Column],
        limit_bytes: int,
        orders: Orders,
    ) -> None:
        self._orders = orders
        self.schema = schema
        self._columns = columns
        self._layout = layout
        self._limit_bytes = limit_bytes

    def alone(self, rows: Rows, chosen: Array) -> Iterator[pa.RecordBatch]:
        """These stream rows; master columns, if any, are null."""
        fields = list(self.schema)[rows.batch.num_columns :]
        for begin, end in self._cuts(_stream_bytes(rows, chosen), len(chosen)):
            some = take_rows(rows.batch, chosen[begin:end])
            nulls = [pa.nulls(end - begin, field.type) for field in fields]
            yield self._batch([*some.columns, *nulls])

    def matched(self, rows: Rows, chosen: Array, places: Places) -> Iterator[pa.RecordBatch]:
        """Stream rows, each with the master row at its place."""
        items: Array | int = 0
        for column in self._layout:
            items = items + self._columns.measuring_bytes(column, places)
        for begin, end in self._cuts(items, len(chosen)):
            yield from self._pairs(rows, chosen[begin:end], _part(places, begin, end))

    def _pairs(self, rows: Rows, chosen: Array, places: Places) -> Iterator[pa.RecordBatch]:
        sizes = _stream_bytes(rows, chosen)
        for column in self._layout:
            sizes = sizes + self._columns.value_bytes(column, places)
        fields = list(self.schema)[rows.batch.num_columns :]
        for begin, end in self._cuts(sizes, len(chosen)):
            some = take_rows(rows.batch, chosen[begin:end])
            part = _part(places, begin, end)
            values = [
                _wrap(self._columns.take(column, part), field.type)
                for column, field in zip(self._layout, fields, strict=True)
            ]
            yield self._batch([*some.columns, *values])

    def _batch(self, columns: list[pa.Array]) -> pa.RecordBatch:
        declared = [
            declared_values(column, field.type, self._orders, (field.name,))
            for column, field in zip(columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(declared, schema=self.schema)

    def _cuts(self, sizes: Array | int, rows: int) -> Iterator[tuple[int, int]]:
        """Ranges of rows that each fit into a batch."""
        if isinstance(sizes, int):
            step = max(1, self._limit_bytes // max(sizes, 1))
            yield from ((begin, min(begin + step, rows)) for begin in range(0, rows, step))
            return
        yield from portions(sizes, self._limit_bytes)


def _stream_bytes(rows: Rows, chosen: Array) -> Array | int:
    return fixed_row_bytes(rows.batch.schema) if rows.sizes is None else rows.sizes[chosen]


def _part(places: Places, begin: int, end: int) -> Places:
    return places if end - begin == len(places) else places.slice(begin, end)


def _wrap(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, array)
    return array
