"""Copies of the reference with one bug each. A check that passes them checks nothing."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from adjoin import BudgetError
from tests.conformance.batches import as_batch
from tests.conformance.semistream.reference import ROOM_BYTES, Reference
from tests.conformance.semistream.snapshots import Snapshot
from tests.oracle import Pairs, assembled, taken

Batches = Iterator[pa.RecordBatch]

BROKEN: dict[type[Reference], set[str]] = {}


def caught_by(*checks: str) -> Any:
    """Register a broken operator with the names of the checks that must fail on it."""

    def register(kind: type[Reference]) -> type[Reference]:
        BROKEN[kind] = set(checks)
        return kind

    return register


@caught_by(
    "oracle", "batch_rows", "groups_batch_rows", "range_oracle", "run", "updates_interleaved", "two_at_once"
)
class DuplicatesARow(Reference):
    def shaped(self, stream: pa.Table, master: Snapshot, pairs: Pairs) -> pa.Table:
        rows = super().shaped(stream, master, pairs)
        return pa.concat_tables([rows, rows.slice(0, 1)])


@caught_by(
    "oracle",
    "shape",
    "key_alone",
    "extension_types",
    "payload_types",
    "payload_types_least",
    "filter",
    "least_batch_rows",
    "least_shape",
    "groups_budgets",
    "range_budgets",
    "range_batch_rows",
    "idle_answers_everything",
    "updates_groups",
    "updates_range",
    "range_columns",
    "columns",
    "metrics",
)
class LosesARow(Reference):
    def shaped(self, stream: pa.Table, master: Snapshot, pairs: Pairs) -> pa.Table:
        rows = super().shaped(stream, master, pairs)
        self.counts["rows_out"] += 1
        return rows.slice(0, max(0, len(rows) - 1))


@caught_by(
    "oracle", "range_shape", "key_type", "changing_dictionaries", "float_rules", "refresh_is_seen_at_once"
)
class LosesUnmatched(Reference):
    def shaped(self, stream: pa.Table, master: Snapshot, pairs: Pairs) -> pa.Table:
        rows = super().shaped(stream, master, pairs)
        if self.how == "anti":
            return rows.slice(0, 0)
        return rows.slice(0, len(pairs[0])) if self.how == "left" else rows


@caught_by("batch_rows")
class KnowsFiftyRowsAtMost(Reference):
    def push(self, batch: pa.RecordBatch) -> Batches:
        yield from super().push(batch.slice(0, 50))


@caught_by("empty_batches")
class RepeatsBeforeAnEmptyBatch(Reference):
    last: pa.RecordBatch | None = None

    def push(self, batch: pa.RecordBatch) -> Batches:
        repeated = self.last if len(batch) == 0 and self.last is not None else batch
        self.last = batch
        yield from super().push(repeated)


@caught_by("no_batches", "run_of_nothing")
class TalksToItself(Reference):
    def finish(self) -> Batches:
        yield from super().finish()
        if not self.counts["rows_in"]:
            yield as_batch(self.snapshot.table.slice(0, 1))


@caught_by("oracle", "groups_batch_rows", "updates_groups")
class LooksIntoOnePage(Reference):
    def matches(self, stream: pa.Table, master: Snapshot) -> Pairs:
        rows, others = super().matches(stream, master)
        kept = [i for i in range(len(rows)) if i < 30 or rows[i - 30] != rows[i]]
        return rows[kept], others[kept]


@caught_by("shape", "key_type")
class TakesNullForZero(Reference):
    def keys(self, columns: Sequence[pa.ChunkedArray], types: Sequence[pa.DataType]) -> list[Any]:
        return [((0, 0),) if key is None else key for key in super().keys(columns, types)]


@caught_by("float_rules", "key_type")
class TellsNanFromNan(Reference):
    def keys(self, columns: Sequence[pa.ChunkedArray], types: Sequence[pa.DataType]) -> list[Any]:
        keys = super().keys(columns, types)
        return [object() if key is not None and (1, 0.0) in key else key for key in keys]


@caught_by("float_rules")
class TellsZeros(Reference):
    def keys(self, columns: Sequence[pa.ChunkedArray], types: Sequence[pa.DataType]) -> list[Any]:
        return [None if key is None else repr(key) for key in super().keys(columns, types)]


@caught_by("composite_names", "key_type", "hash_collisions")
class ComparesAFewBits(Reference):
    def keys(self, columns: Sequence[pa.ChunkedArray], types: Sequence[pa.DataType]) -> list[Any]:
        return [None if key is None else len(repr(key)) % 16 for key in super().keys(columns, types)]


@caught_by("widened_key")
class WantsTheVeryType(Reference):
    def keys(self, columns: Sequence[pa.ChunkedArray], types: Sequence[pa.DataType]) -> list[Any]:
        same = all(column.type == kind for column, kind in zip(columns, types, strict=True))
        return super().keys(columns, types) if same else [None] * len(columns[0])


@caught_by("range_oracle", "range_names", "range_shape", "range_batch_rows", "within_type", "between_type")
class LeavesOutTheUpperBound(Reference):
    def matches(self, stream: pa.Table, master: Snapshot) -> Pairs:
        rows, others = super().matches(stream, master)
        last = np.append(rows[1:] != rows[:-1], True)[: len(rows)] & self.predicate.is_range
        return rows[~last], others[~last]


@caught_by("suffix", "suffix_default", "dictionaries")
class HasASuffixOfItsOwn(Reference):
    def shaped(self, stream: pa.Table, master: Snapshot, pairs: Pairs) -> pa.Table:
        return assembled(stream, master.table, pairs, self.predicate, self.how, self.columns, "_right")


@caught_by("columns", "range_columns")
class IgnoresColumns(Reference):
    def shaped(self, stream: pa.Table, master: Snapshot, pairs: Pairs) -> pa.Table:
        return assembled(stream, master.table, pairs, self.predicate, self.how, None, self.suffix)


@caught_by("other_names", "composite_names", "range_names")
class DropsEveryKey(Reference):
    def shaped(self, stream: pa.Table, master: Snapshot, pairs: Pairs) -> pa.Table:
        wanted = [name for name in self.columns or master.table.column_names if name not in master.key]
        return assembled(stream, master.table, pairs, self.predicate, self.how, wanted, self.suffix)


@caught_by("master_encodings", "stream_views", "payload_types", "dictionaries")
class ChangesTypes(Reference):
    def shaped(self, stream: pa.Table, master: Snapshot, pairs: Pairs) -> pa.Table:
        rows = super().shaped(stream, master, pairs)
        for place, name in enumerate(rows.column_names):
            text = rows[name].type in (pa.string(), pa.string_view())
            if text or pa.types.is_dictionary(rows[name].type):
                rows = rows.set_column(place, name, rows[name].cast(pa.large_string()))
        return rows


@caught_by("changing_dictionaries")
class KeepsTheFirstDictionary(Reference):
    first: pa.Array = None

    def push(self, batch: pa.RecordBatch) -> Batches:
        for place, column in enumerate(batch.columns):
            if pa.types.is_dictionary(column.type):
                self.first = column.dictionary if self.first is None else self.first
                stale = pa.DictionaryArray.from_arrays(column.indices, self.first)
                batch = batch.set_column(place, batch.schema.field(place), stale)
        yield from super().push(batch)


@caught_by("slices", "batch_rows")
class ForgetsOffsets(Reference):
    def push(self, batch: pa.RecordBatch) -> Batches:
        for place, column in enumerate(batch.columns):
            if column.type == pa.int64():
                begun = pa.Array.from_buffers(column.type, len(column), column.buffers())
                batch = batch.set_column(place, batch.schema.field(place), begun)
        yield from super().push(batch)


@caught_by("large_master_rows")
class CutsLongText(Reference):
    def use(self, master: Snapshot) -> None:
        table = master.table
        if "text" in table.column_names:
            short = pa.array([text and text[:4000] for text in table["text"].to_pylist()], table["text"].type)
            table = table.set_column(table.column_names.index("text"), "text", short)
        super().use(Snapshot(table, master.key, master.build))


@caught_by("oracle", "budgets")
class ReusesItsOutput(Reference):
    """A returned batch changes when the next one is built."""

    scratch: ClassVar[np.ndarray] = np.zeros(100_000, np.int64)

    def answer(self, stream: pa.Table) -> Batches:
        for batch in super().answer(stream):
            self.scratch[: len(batch)] = batch["rid"].to_numpy()
            shared = pa.Array.from_buffers(pa.int64(), len(batch), [None, pa.py_buffer(self.scratch)])
            yield batch.set_column(0, batch.schema.field(0), shared)


@caught_by("budgets", "groups_budgets", "range_budgets", "run", "least_shape")
class SpendsMore(Reference):
    def account(self, waiting_bytes: int) -> None:
        self.peak_bytes = max(self.peak_bytes, waiting_bytes and self.memory_bytes + 1)


@caught_by("below_least")
class TakesAnyBudget(Reference):
    def use(self, master: Snapshot) -> None:
        given, self.memory_bytes = self.memory_bytes, 1 << 40
        super().use(master)
        self.memory_bytes = given


@caught_by("below_least")
class SaysOnlyTooLittle(Reference):
    def use(self, master: Snapshot) -> None:
        if self.memory_bytes < self.least_memory(master):
            raise BudgetError("that is too little memory")
        super().use(master)


@caught_by("budgets", "least_shape", "least_batch_rows")
class NeedsMoreThanItsLeast(Reference):
    @staticmethod
    def least_memory(master: Snapshot) -> int:
        return Reference.least_memory(master) - 1

    def use(self, master: Snapshot) -> None:
        if self.memory_bytes < Reference.least_memory(master):
            raise BudgetError(f"give {Reference.least_memory(master)}")
        super().use(master)


@caught_by("budget_is_the_one_given")
class TakesMoreThanGiven(Reference):
    def metrics(self) -> dict[str, Any]:
        return super().metrics() | {"memory_bytes": self.memory_bytes * 2}


@caught_by("wide_stream_rows", "row_widths")
class RefusesWideRows(Reference):
    def push(self, batch: pa.RecordBatch) -> Batches:
        if batch.nbytes > ROOM_BYTES:
            raise BudgetError(f"memory={self.memory_bytes} is too little for a row")
        yield from super().push(batch)


@caught_by("failed_construction_leaves_nothing")
class BearsAGrudge(Reference):
    refused: ClassVar[list[int]] = []

    def use(self, master: Snapshot) -> None:
        if self.memory_bytes < self.least_memory(master):
            self.refused.append(self.memory_bytes)
        super().use(master)

    def answer(self, stream: pa.Table) -> Batches:
        yield from super().answer(stream.slice(0, 0) if self.refused else stream)


@caught_by(
    "updates_interleaved",
    "updates_and_pauses",
    "updates_range",
    "updates_groups",
    "refresh_is_seen_at_once",
    "update_to_empty_and_back",
    "refresh_without_rows",
)
class StaysWithTheOldVersion(Reference):
    def refresh(self, master: Snapshot) -> Batches:
        yield from self.answer_waiting()


@caught_by("updates_interleaved", "updates_groups")
class MixesVersions(Reference):
    """Rows pending at a refresh get half of their matches from each version."""

    def refresh(self, master: Snapshot) -> Batches:
        old, stream = self.snapshot, self.waiting
        self.waiting, self.waiting_bytes = [], 0
        if stream:
            table = pa.concat_tables(stream)
            before = self.shaped(table, old, self.matches(table, old))
            self.use(master)
            after = self.shaped(table, master, self.matches(table, master))
            halves = [
                taken(rows, pa.array(np.arange(i, len(rows), 2))) for i, rows in enumerate((before, after))
            ]
            yield as_batch(pa.concat_tables(halves))
        self.use(master)


@caught_by("idle_answers_everything")
class NeverAnswersInAPause(Reference):
    def idle(self, seconds: float) -> Batches:
        yield from ()


@caught_by("idle_between", "run", "updates_and_pauses")
class ForgetsInAPause(Reference):
    def idle(self, seconds: float) -> Batches:
        self.waiting, self.waiting_bytes = [], 0
        yield from ()


@caught_by("metrics")
class CountsOutputTwice(Reference):
    def metrics(self) -> dict[str, Any]:
        return super().metrics() | {"rows_out": 2 * self.counts["rows_out"]}


@caught_by("metrics")
class CountsNullsAsMatched(Reference):
    def metrics(self) -> dict[str, Any]:
        return super().metrics() | {"rows_unmatched": max(0, self.counts["rows_unmatched"] - 1)}


@caught_by("metrics")
class StartsCountingAnew(Reference):
    def push(self, batch: pa.RecordBatch) -> Batches:
        self.counts["rows_in"] = 0
        yield from super().push(batch.slice(0, 80 - len(self.waiting)))


@caught_by("waiting_is_measured")
class ExaggeratesWaiting(Reference):
    def metrics(self) -> dict[str, Any]:
        return super().metrics() | {"seconds_waiting_max": 1e6}


@caught_by("close_twice")
class ClosesOnce(Reference):
    closed = False

    def close(self) -> None:
        assert not self.closed, "closed already"
        self.closed = True


@caught_by("two_at_once")
class SharesItsRows(Reference):
    shared: ClassVar[list[pa.Table]] = []

    def use(self, master: Snapshot) -> None:
        super().use(master)
        self.waiting = self.shared


@caught_by(
    "unknown_how",
    "unknown_columns",
    "on_must_name_the_key",
    "missing_stream_column",
    "key_of_another_type",
    "name_taken_twice",
    "range_without_order",
    "refused_batch_changes_nothing",
)
class TakesEverything(Reference):
    def __init__(
        self, master: Snapshot, on: Any, how: str = "inner", memory: int = 1 << 26, **options: Any
    ) -> None:
        known = how if how in ("inner", "left", "semi", "anti") else "inner"
        super().__init__(master, on, known, memory, **options)

    def _check_master(self, master: Snapshot) -> None: ...
    def _check_stream(self, schema: pa.Schema) -> None: ...


@caught_by("refused_batch_changes_nothing")
class LosesRowsWithARefusedBatch(Reference):
    def push(self, batch: pa.RecordBatch) -> Batches:
        if "k" not in batch.schema.names:
            self.waiting, self.waiting_bytes = [], 0
        yield from super().push(batch)
