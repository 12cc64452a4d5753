"""Copies of the references with one bug each. A check that passes them checks nothing."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, TypeVar

import numpy as np
import pyarrow as pa

from adjoin import BudgetError
from tests.conformance.batches import as_batch
from tests.conformance.streamjoin.reference import (
    ROOM_BYTES,
    Batches,
    Core,
    ManyReference,
    Reference,
    Result,
    Side,
)
from tests.oracle import Predicate, assembled

BROKEN: dict[type[Core], set[str]] = {}
Kind = TypeVar("Kind", bound=type[Core])


def caught_by(*checks: str) -> Callable[[Kind], Kind]:
    """Register a broken join with the names of the checks that must fail on it."""

    def register(kind: Kind) -> Kind:
        BROKEN[kind] = set(checks)
        return kind

    return register


@caught_by("oracle", "oracle_in_memory", "batch_rows", "range_oracle", "run", "two_at_once")
class DuplicatesAResult(Reference):
    def emitted(self, results: list[Result], phase: str) -> Batches:
        yield from super().emitted(results + results[:1], phase)


@caught_by(
    "oracle",
    "shape",
    "range_shape",
    "key_alone",
    "columns",
    "row_widths",
    "least_shape",
    "payload_types",
    "extension_types",
    "dictionaries",
    "views",
    "slices",
    "other_names",
    "results_come_as_soon_as_their_rows",
    "failed_construction_leaves_nothing",
)
class LosesAResult(Reference):
    def emitted(self, results: list[Result], phase: str) -> Batches:
        self.given.update(results[-1:])
        yield from super().emitted(results[:-1], phase)


@caught_by(
    "oracle",
    "pauses",
    "range_pauses",
    "side_ends_early",
    "budgets",
    "range_budgets",
    "least_batch_rows",
    "restored_after_every_batch",
    "restored_after_every_pause",
    "restored_range",
    "use_after_error",
)
class ForgetsWhatLeftMemory(Reference):
    def missing(self) -> list[Result]:
        return []


@caught_by("pauses", "range_pauses", "budgets", "run", "restored_after_every_pause")
class RepeatsInEveryPause(Reference):
    def _idle(self, seconds: float) -> Batches:
        yield from super()._idle(seconds)
        self.given.clear()


@caught_by("pauses", "range_pauses", "run")
class ForgetsInAPause(Reference):
    def _idle(self, seconds: float) -> Batches:
        self.given.update(self.missing())
        yield from ()


@caught_by("long_pause_joins_what_is_on_disk")
class DoesNothingInAPause(Reference):
    def _idle(self, seconds: float) -> Batches:
        yield from self._take_offered()


@caught_by("offer_while_results_are_consumed")
class LosesOfferedRows(Reference):
    def _take_offered(self) -> Batches:
        self.offered.clear()
        yield from ()


@caught_by("offer_while_results_are_consumed")
class RefusesOffers(Reference):
    def offer(self, side: str, batch: pa.RecordBatch) -> bool:
        return False


@caught_by("batch_rows", "range_batch_rows", "least_batch_rows")
class KnowsFiftyRowsAtMost(Reference):
    def _take_in(self, number: int, batch: pa.RecordBatch) -> Batches:
        yield from super()._take_in(number, batch.slice(0, 50))


@caught_by("empty_batches")
class RepeatsBeforeAnEmptyBatch(Reference):
    last: pa.RecordBatch | None = None
    last_number = -1

    def _take_in(self, number: int, batch: pa.RecordBatch) -> Batches:
        is_repeated = len(batch) == 0 and self.last is not None and self.last_number == number
        some = self.last if is_repeated else batch
        self.last, self.last_number = batch, number
        yield from super()._take_in(number, some)


@caught_by("no_batches", "run_of_nothing", "one_side_empty")
class EndsWithARowOfNulls(Reference):
    def _finish(self) -> Batches:
        yield as_batch(pa.table([pa.nulls(1, field.type) for field in self.schema], schema=self.schema))
        yield from super()._finish()


@caught_by("side_ends_early", "restored_after_the_end_of_a_side")
class ForgetsTheSideThatEnded(Reference):
    def end(self, side: str) -> None:
        super().end(side)
        for sides in (self.all, self.held):
            for link in range(len(self.links)):
                is_left = side == self.names[0]
                empty = Side(self.links[link][2].is_range)
                sides[link] = (empty, sides[link][1]) if is_left else (sides[link][0], empty)


@caught_by("shape", "oracle", "key_type")
class TakesNullForZero(Reference):
    def keys(self, link: int, number: int, batch: pa.RecordBatch) -> list[Any]:
        return [(((0, 0),), ((0, 0),)) if key is None else key for key in super().keys(link, number, batch)]


@caught_by("float_rules", "key_type")
class TellsNanFromNan(Reference):
    def keys(self, link: int, number: int, batch: pa.RecordBatch) -> list[Any]:
        keys = super().keys(link, number, batch)
        return [(object(), 0) if key is not None and (1, 0.0) in key[0] else key for key in keys]


@caught_by("float_rules")
class TellsZeros(Reference):
    def keys(self, link: int, number: int, batch: pa.RecordBatch) -> list[Any]:
        keys = super().keys(link, number, batch)
        return [None if key is None else (repr(key[0]), repr(key[1])) for key in keys]


@caught_by("hash_collisions", "composite_names", "key_type")
class ComparesAFewBits(Reference):
    def keys(self, link: int, number: int, batch: pa.RecordBatch) -> list[Any]:
        keys = super().keys(link, number, batch)
        return [None if key is None else (len(repr(key)) % 16, 0) for key in keys]


@caught_by("widened_key")
class WantsTheVeryType(Reference):
    def keys(self, link: int, number: int, batch: pa.RecordBatch) -> list[Any]:
        kinds = [schema.field("k").type for schema in self.schemas]
        return super().keys(link, number, batch) if kinds[0] == kinds[1] else [None] * len(batch)


@caught_by(
    "range_oracle",
    "range_batch_rows",
    "range_shape",
    "range_names",
    "range_pauses",
    "range_budgets",
    "restored_range",
    "within_type",
    "between_type",
)
class LeavesOutTheUpperBound(Reference):
    def results_of(self, number: int, row: int, sides: list[tuple[Side, Side]]) -> list[Result]:
        found = super().results_of(number, row, sides)
        if not self.predicate.is_range:
            return found
        one, other = self.all[0]
        return [result for result in found if one.reach[result[0]][1] != other.reach[result[1]][0]]


@caught_by("suffix", "suffix_default", "payload_types")
class HasASuffixOfItsOwn(Reference):
    def shaped(self, tables: list[pa.Table], rows: list[np.ndarray]) -> pa.Table:
        left, right = tables
        return assembled(left, right, (rows[0], rows[1]), self.predicate, "inner", None, "_other")


@caught_by("other_names", "composite_names", "range_names", "range_keeps_both_keys")
class DropsEveryKeyOfTheRight(Reference):
    def shaped(self, tables: list[pa.Table], rows: list[np.ndarray]) -> pa.Table:
        left, right = tables
        kept = [name for name in right.column_names if name not in self.predicate.names.values()]
        return assembled(left, right, (rows[0], rows[1]), self.predicate, "inner", kept, self.suffix)


@caught_by("columns")
class IgnoresColumns(Reference):
    def __init__(self, *arguments: Any, columns: Any = None, **options: Any) -> None:
        super().__init__(*arguments, **options)


@caught_by("dictionaries", "views", "payload_types")
class ChangesTypes(Reference):
    def shaped(self, tables: list[pa.Table], rows: list[np.ndarray]) -> pa.Table:
        table = super().shaped(tables, rows)
        for place, name in enumerate(table.column_names):
            kind = table[name].type
            if (
                pa.types.is_string_view(kind)
                or pa.types.is_dictionary(kind)
                or pa.types.is_large_binary(kind)
            ):
                plain = pa.binary() if pa.types.is_large_binary(kind) else pa.string()
                table = table.set_column(place, name, table[name].cast(plain))
        return table


@caught_by("changing_dictionaries")
class KeepsTheFirstDictionary(Reference):
    first: pa.Array = None

    def _take_in(self, number: int, batch: pa.RecordBatch) -> Batches:
        for place, column in enumerate(batch.columns):
            if pa.types.is_dictionary(column.type):
                self.first = column.dictionary if self.first is None else self.first
                stale = pa.DictionaryArray.from_arrays(column.indices, self.first)
                batch = batch.set_column(place, batch.schema.field(place), stale)
        yield from super()._take_in(number, batch)


@caught_by("slices", "batch_rows")
class ForgetsOffsets(Reference):
    def _take_in(self, number: int, batch: pa.RecordBatch) -> Batches:
        for place, column in enumerate(batch.columns):
            if column.type == pa.int64():
                begun = pa.Array.from_buffers(column.type, len(column), column.buffers())
                batch = batch.set_column(place, batch.schema.field(place), begun)
        yield from super()._take_in(number, batch)


@caught_by("oracle", "budgets")
class ReusesItsOutput(Reference):
    """A returned batch changes when the next one is built."""

    scratch: ClassVar[np.ndarray] = np.zeros(100_000, np.int64)

    def emitted(self, results: list[Result], phase: str) -> Batches:
        for batch in super().emitted(results, phase):
            self.scratch[: len(batch)] = batch["l_number"].to_numpy()
            shared = pa.Array.from_buffers(pa.int64(), len(batch), [None, pa.py_buffer(self.scratch)])
            place = batch.schema.get_field_index("l_number")
            yield batch.set_column(place, batch.schema.field(place), shared)


@caught_by("budgets", "range_budgets", "run", "least_shape", "pauses", "side_ends_early")
class SpendsMore(Reference):
    def make_room(self, row_bytes: int) -> None:
        super().make_room(row_bytes)
        self.peak_bytes = self.memory_bytes + 1


@caught_by("oracle", "batch_rows", "results_come_before_the_end", "restored_after_every_batch")
class KeepsMoreThanItSays(Reference):
    """All rows stay in memory, unaccounted."""

    def make_room(self, row_bytes: int) -> None: ...


@caught_by("oracle_in_memory")
class WritesWithoutNeed(Reference):
    def make_room(self, row_bytes: int) -> None:
        super().make_room(row_bytes)
        self.counts["blocks_flushed"] += 1


@caught_by("below_least")
class TakesAnyBudget(Reference):
    def _check_arguments(self) -> None:
        given, self.memory_bytes = self.memory_bytes, 1 << 40
        super()._check_arguments()
        if given > 1:
            self.memory_bytes = given
            return
        raise BudgetError(f"give memory={ROOM_BYTES}")


@caught_by("below_least")
class SaysAnotherLeast(Reference):
    def least_memory(self) -> int:
        return ROOM_BYTES + (self.memory_bytes > 1)


@caught_by("budgets", "least_shape", "least_batch_rows")
class NeedsMoreThanItsLeast(Reference):
    def _check_arguments(self) -> None:
        if self.memory_bytes < ROOM_BYTES:
            raise BudgetError(f"give memory={ROOM_BYTES - 1}")


@caught_by("budget_is_the_one_given")
class TakesMoreThanGiven(Reference):
    def metrics(self) -> dict[str, Any]:
        return super().metrics() | {"memory_bytes": self.memory_bytes * 2}


@caught_by("wide_row")
class NamesTooLittleForAWideRow(Reference):
    def push(self, side: str, batch: pa.RecordBatch) -> Batches:
        try:
            return super().push(side, batch)
        except BudgetError as error:
            raise BudgetError(f"give memory={self.memory_bytes + 1}") from error


@caught_by("wide_row")
class LosesRowsWithAWideOne(Reference):
    def _check_batch(self, number: int, batch: pa.RecordBatch) -> None:
        try:
            super()._check_batch(number, batch)
        except BudgetError:
            self.all = self._sides()
            self.held = self._sides()
            raise


@caught_by("failed_construction_leaves_nothing")
class BearsAGrudge(Reference):
    refused: ClassVar[list[int]] = []

    def _check_arguments(self) -> None:
        if self.memory_bytes < self.least_memory():
            self.refused.append(self.memory_bytes)
        super()._check_arguments()

    def emitted(self, results: list[Result], phase: str) -> Batches:
        yield from super().emitted([] if self.refused else results, phase)


@caught_by("restored_after_every_batch", "restored_after_every_pause")
class ForgetsWhatWasGiven(Reference):
    state_names = tuple(name for name in Reference.state_names if name != "given")


@caught_by("restored_after_every_batch", "restored_range", "restored_after_the_end_of_a_side")
class ForgetsRowsInASnapshot(Reference):
    state_names = tuple(name for name in Reference.state_names if name != "all")


@caught_by("restored_after_every_batch")
class StartsCountingAnewWhenRestored(Reference):
    state_names = tuple(name for name in Reference.state_names if name != "counts")


@caught_by("restored_after_the_end_of_a_side")
class ForgetsTheEndInASnapshot(Reference):
    state_names = tuple(name for name in Reference.state_names if name != "has_ended")


@caught_by("snapshot_changes_nothing")
class WritesDownAndForgets(Reference):
    def snapshot(self) -> Iterator[tuple[str, bytes]]:
        yield from super().snapshot()
        self.all = self._sides()
        self.held = self._sides()


@caught_by("snapshot_changes_nothing")
class CountsASnapshotAsFlush(Reference):
    def snapshot(self) -> Iterator[tuple[str, bytes]]:
        yield from super().snapshot()
        self.counts["blocks_flushed"] += 1


@caught_by("results_come_as_soon_as_their_rows", "results_come_before_the_end")
class WaitsForTheEnd(Reference):
    def _take_in(self, number: int, batch: pa.RecordBatch) -> Batches:
        for _ in super()._take_in(number, batch):
            continue
        self.given.clear()
        yield from ()


@caught_by("metrics")
class CountsOutputTwice(Reference):
    def metrics(self) -> dict[str, Any]:
        return super().metrics() | {"rows_out": 2 * self.counts["rows_out"]}


@caught_by("metrics")
class ForgetsAPhase(Reference):
    def metrics(self) -> dict[str, Any]:
        return super().metrics() | {"results_reactive": 0}


@caught_by("metrics", "refused_batch_changes_nothing")
class StartsCountingAnew(Reference):
    def _push(self, number: int, batch: pa.RecordBatch) -> Batches:
        self.counts["rows_in"] = 0
        yield from super()._push(number, batch)


@caught_by("close_twice")
class ClosesOnce(Reference):
    def close(self) -> None:
        assert not self.is_over, "closed already"
        super().close()


@caught_by("use_after_finish", "use_after_close")
class LivesForever(Reference):
    def check_open(self) -> None: ...


@caught_by("use_after_error")
class HidesErrorsOfTheSource(Reference):
    def run(self, arrivals: Iterable[Any]) -> Batches:
        def whole() -> Iterator[Any]:
            try:
                yield from arrivals
            except ConnectionError:
                return

        yield from super().run(whole())


@caught_by("results_must_be_consumed_first")
class MixesCalls(Reference):
    def _alone(self, work: Batches) -> Batches:
        self.is_busy = False
        return super()._alone(work)


@caught_by("two_at_once", "use_after_error")
class SharesItsRows(Reference):
    shared: ClassVar[set[Result]] = set()

    def emitted(self, results: list[Result], phase: str) -> Batches:
        new = [result for result in results if result not in self.shared]
        self.shared.update(new)
        yield from super().emitted(new, phase)


@caught_by(
    "unknown_side",
    "batch_after_the_end_of_its_side",
    "missing_key",
    "keys_of_unlike_types",
    "name_taken_twice",
    "range_without_order",
    "range_of_two_keys",
    "refused_batch_changes_nothing",
)
class TakesEverything(Reference):
    def __init__(self, left: pa.Schema, right: pa.Schema, on: Any, memory: int, **options: Any) -> None:
        suffix = "_" * 9 if "note_right" in left.names else "_right"
        super().__init__(left, right, on, memory, **{"suffix": suffix, **options})

    def shaped(self, tables: list[pa.Table], rows: list[np.ndarray]) -> pa.Table:
        left, right = tables
        nothing = self.predicate if "k" in left.schema.names and "k" in right.schema.names else Predicate([])
        return assembled(left, right, (rows[0], rows[1]), nothing, "inner", None, self.suffix)

    def _check_arguments(self) -> None: ...
    def _check_batch(self, number: int, batch: pa.RecordBatch) -> None: ...
    def _number(self, side: str) -> int:
        return self.names.index(side) if side in self.names else 0


@caught_by("refused_batch_changes_nothing")
class LosesRowsWithARefusedBatch(Reference):
    def _check_batch(self, number: int, batch: pa.RecordBatch) -> None:
        if "product" in batch.schema.names:
            self.all = self._sides()
        super()._check_batch(number, batch)


@caught_by("three_inputs", "three_batch_rows", "three_budgets", "three_restored")
class LosesAResultOfMany(ManyReference):
    def missing(self) -> list[Result]:
        return super().missing()[:-1]


@caught_by("three_inputs_one_empty")
class JoinsWithNothing(ManyReference):
    """An empty last input is taken to match everything."""

    def missing(self) -> list[Result]:
        if self.rows[-1]:
            return super().missing()
        partners = self.all[0][1]
        pairs = [
            (row, other) for row, reach in self.all[0][0].reach.items() for other in partners.partners(reach)
        ]
        self.batches[-1].append(
            as_batch(pa.table([pa.nulls(1, f.type) for f in self.schemas[-1]], self.schemas[-1]))
        )
        return [(*pair, *[0] * (len(self.names) - 2)) for pair in pairs]


@caught_by("names_tell_the_relation", "three_inputs")
class NamesColumnsTheOtherWayRound(ManyReference):
    def shaped(self, tables: list[pa.Table], rows: list[np.ndarray]) -> pa.Table:
        table = super().shaped(tables, rows)
        return table.rename_columns(["_".join(name.split("_", 1)[::-1]) for name in table.column_names])
