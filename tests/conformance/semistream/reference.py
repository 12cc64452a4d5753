"""An in-memory join in plain Python that follows the contract of the operators.

It is the twin that tests the checks: it must pass all of them, and each of its broken variants
must fail. It shares no line with DuckDB's part of the oracle, so the two also check each other.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin import BudgetError, OptionError, Pause, SchemaError
from tests.conformance.batches import as_batch
from tests.conformance.keys import canonical_keys, intervals, orders
from tests.conformance.semistream.snapshots import Snapshot
from tests.oracle import Pairs, Predicate, assembled

ROOM_BYTES = 4096


class Reference:
    """Keeps rows until its room is full, then answers all of them from the table in memory."""

    def __init__(
        self,
        master: Snapshot,
        on: Any,
        how: str = "inner",
        memory: int = 1 << 26,
        *,
        columns: Sequence[str] | None = None,
        within: Any = None,
        between: tuple[str, str] | None = None,
        suffix: str = "_master",
        clock: Any = None,
    ) -> None:
        if how not in ("inner", "left", "semi", "anti"):
            raise OptionError(f"how={how!r} is none of inner, left, semi, anti")
        self.predicate = Predicate(on, within, between)
        self.how, self.columns, self.suffix, self.clock = how, columns, suffix, clock
        self.memory_bytes = memory
        self.counts: Counter[str] = Counter()
        self.peak_bytes = 0
        self.waiting: list[pa.Table] = []
        self.waiting_bytes = 0
        self.oldest_seconds: float | None = None
        self.waited_seconds = 0.0
        self._check_master(master)
        self.use(master)

    @staticmethod
    def least_memory(master: Snapshot) -> int:
        return master.table.nbytes + ROOM_BYTES

    def use(self, master: Snapshot) -> None:
        least = self.least_memory(master)
        if self.memory_bytes < least:
            raise BudgetError(f"memory={self.memory_bytes} is too little; give {least} or more")
        self.snapshot = master
        self.account(0)
        columns = [master.table[name] for name in self.predicate.names.values()]
        self.groups: dict[Any, list[int]] = {}
        for row, key in enumerate(self.keys(columns, [column.type for column in columns])):
            self.groups.setdefault(key, []).append(row)
        by_row = enumerate(orders(columns[0], columns[0].type))
        self.held = sorted((key, row) for row, key in by_row if key is not None)

    def account(self, waiting_bytes: int) -> None:
        self.peak_bytes = max(self.peak_bytes, self.snapshot.table.nbytes + waiting_bytes)

    def schema_of(self, stream: pa.Schema) -> pa.Schema:
        self._check_stream(stream)
        nothing = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        return self.shaped(stream.empty_table(), self.snapshot, nothing).schema

    def push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self._check_stream(batch.schema)
        self.counts["rows_in"] += len(batch)
        room = self.memory_bytes - self.snapshot.table.nbytes
        for start in range(0, len(batch), 64):
            part = pa.Table.from_batches([batch.slice(start, 64)])
            if self.waiting_bytes + part.nbytes > room:
                yield from self.answer_waiting()
            if part.nbytes > room:
                yield from self.answer(part)
                continue
            self.waiting.append(part)
            self.waiting_bytes += part.nbytes
            self.oldest_seconds = self._now() if self.oldest_seconds is None else self.oldest_seconds
            self.account(self.waiting_bytes)

    def idle(self, seconds: float) -> Iterator[pa.RecordBatch]:
        yield from self.answer_waiting()
        if self.clock:
            self.clock.sleep(seconds)

    def refresh(self, master: Snapshot) -> Iterator[pa.RecordBatch]:
        yield from self.answer_waiting()
        self.use(master)

    def finish(self) -> Iterator[pa.RecordBatch]:
        yield from self.answer_waiting()

    def run(self, items: Iterable[pa.RecordBatch | Pause]) -> Iterator[pa.RecordBatch]:
        for item in items:
            yield from self.idle(item.seconds) if isinstance(item, Pause) else self.push(item)
        yield from self.finish()

    def metrics(self) -> dict[str, Any]:
        names = ("rows_in", "rows_out", "rows_unmatched", "cache_hits", "pages_read", "seeks", "bytes_read")
        return {name: self.counts[name] for name in names} | {
            "memory_bytes": self.memory_bytes,
            "peak_bytes": self.peak_bytes,
            "seconds_waiting_max": self.waited_seconds,
        }

    def close(self) -> None:
        self.waiting.clear()

    def answer_waiting(self) -> Iterator[pa.RecordBatch]:
        if self.oldest_seconds is not None:
            self.waited_seconds = max(self.waited_seconds, self._now() - self.oldest_seconds)
        self.oldest_seconds = None
        tables, self.waiting, self.waiting_bytes = self.waiting, [], 0
        if tables:
            yield from self.answer(pa.concat_tables(tables))

    def answer(self, stream: pa.Table) -> Iterator[pa.RecordBatch]:
        pairs = self.matches(stream, self.snapshot)
        self.counts["rows_unmatched"] += len(stream) - len(np.unique(pairs[0]))
        self.counts["cache_hits"] += len(stream)
        rows = self.shaped(stream, self.snapshot, pairs)
        for start in range(0, len(rows), 1000):
            part = as_batch(rows.slice(start, 1000))
            self.counts["rows_out"] += len(part)
            yield part

    def shaped(self, stream: pa.Table, master: Snapshot, pairs: Pairs) -> pa.Table:
        return assembled(stream, master.table, pairs, self.predicate, self.how, self.columns, self.suffix)

    def matches(self, stream: pa.Table, master: Snapshot) -> Pairs:
        if self.predicate.is_range:
            found = self._range_matches(stream, master.table)
        else:
            found = self._equal_matches(stream, master.table)
        return np.array([s for s, _ in found], np.int64), np.array([m for _, m in found], np.int64)

    def _equal_matches(self, stream: pa.Table, master: pa.Table) -> list[tuple[int, int]]:
        names = self.predicate.names
        types = [master.schema.field(name).type for name in names.values()]
        keys = self.keys([stream[name] for name in names], types)
        groups = self.groups
        return [
            (row, other) for row, key in enumerate(keys) if key is not None for other in groups.get(key, ())
        ]

    def keys(self, columns: Sequence[pa.ChunkedArray], types: Sequence[pa.DataType]) -> list[Any]:
        return canonical_keys(columns, types)

    def _range_matches(self, stream: pa.Table, master: pa.Table) -> list[tuple[int, int]]:
        (master_name,) = self.predicate.names.values()
        kind = master.schema.field(master_name).type
        held = self.held
        found = []
        for row, (low, high) in enumerate(intervals(stream, self.predicate, kind)):
            if low is not None and high is not None:
                first = bisect_left(held, low, key=lambda pair: pair[0])
                last = bisect_right(held, high, key=lambda pair: pair[0])
                found += [(row, other) for _, other in held[first:last]]
        return found

    def _check_master(self, master: Snapshot) -> None:
        names = master.table.column_names
        unknown = [name for name in self.columns or () if name not in names]
        if unknown or tuple(self.predicate.names.values()) != master.key:
            raise SchemaError(f"{unknown or self.predicate.on} is not what the master has: {names}")
        kind = master.table.schema.field(master.key[0]).type
        unordered = pa.types.is_large_string(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind)
        if self.predicate.is_range and (len(master.key) > 1 or unordered):
            raise OptionError(f"a range needs a key with an order; {master.key} is kept by its hash")

    def _check_stream(self, schema: pa.Schema) -> None:
        wanted = self.predicate.between or tuple(self.predicate.names)
        missing = [name for name in wanted if name not in schema.names]
        if missing:
            raise SchemaError(f"the stream has no column {missing}; it has {schema.names}")
        self._check_types(schema, wanted)
        self._check_names(schema)

    def _check_types(self, schema: pa.Schema, wanted: Sequence[str]) -> None:
        for name, of_master in zip(wanted, self.snapshot.key * len(wanted), strict=False):
            kind, held = schema.field(name).type, self.snapshot.table.schema.field(of_master).type
            if pa.types.is_string(kind) and pa.types.is_integer(held):
                raise SchemaError(f"{name} is {kind}, {of_master} is {held}; cast one of them")

    def _check_names(self, schema: pa.Schema) -> None:
        taken = set(schema.names)
        for name in self.snapshot.table.column_names:
            clash = name in schema.names and name + self.suffix in taken
            if clash and name not in self.predicate.names and self.how in ("inner", "left"):
                raise SchemaError(f"column {name + self.suffix} is there twice; choose another suffix")

    def _now(self) -> float:
        return float(self.clock.now()) if self.clock else 0.0
