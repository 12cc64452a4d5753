"""An in-memory join of streams in plain Python that follows the contract of the operators.

It tests the checks: it must pass all of them, and each of its broken variants must fail. It finds partners in
dictionaries and remembers every result it has returned, so that none can be returned twice. It only pretends
to spill: when its memory is full, the rows in it are set aside, and the results they still lack are returned
in a pause or at the end.
"""

import pickle
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin import AdjoinError, BudgetError, CorruptionError, OptionError, Pause, SchemaError
from tests.conformance.batches import as_batch
from tests.conformance.keys import canonical_keys, intervals, orders
from tests.oracle import On, Predicate, assembled, taken

Batches = Iterator[pa.RecordBatch]
Result = tuple[int, ...]
"""The row numbers that it is made of, one of each input."""
ROOM_BYTES = 40_000
NOTHING = (np.zeros(0, np.int64), np.zeros(0, np.int64))


class Side:
    """The rows of an input that have a key, for one of its links."""

    def __init__(self, is_range: bool) -> None:
        self.is_range = is_range
        self.reach: dict[int, tuple[Any, Any]] = {}
        self.by_key: dict[Any, list[int]] = {}

    def add(self, row: int, reach: tuple[Any, Any]) -> None:
        self.reach[row] = reach
        self.by_key.setdefault(reach[0], []).append(row)

    def partners(self, reach: tuple[Any, Any]) -> list[int]:
        if not self.is_range:
            return self.by_key.get(reach[0], [])
        low, high = reach
        return [row for row, (first, last) in self.reach.items() if first <= high and low <= last]


class Core:
    """Everything but the form of arguments and results.

    Args:
        schemas: The schemas of the inputs, by name.
        links: Pairs of inputs, by number, with their predicate; each connects an input with one before it.
        memory: The budget.
        clock: Tells the time.
    """

    schema: pa.Schema

    def __init__(
        self,
        schemas: Mapping[str, pa.Schema],
        links: Sequence[tuple[int, int, Predicate]],
        memory: int,
        clock: Any,
    ) -> None:
        self.names, self.schemas = list(schemas), list(schemas.values())
        self.links, self.memory_bytes, self.clock = links, memory, clock
        self._check_arguments()
        self.counts: Counter[str] = Counter()
        self.peak_bytes = 1
        self.used_bytes = 0
        self.batches = [[as_batch(schema.empty_table())] for schema in self.schemas]
        self.rows = [0] * len(self.names)
        self.all = self._sides()
        self.held = self._sides()
        self.given: set[Result] = set()
        self.offered: deque[tuple[int, pa.RecordBatch]] = deque()
        self.has_ended = [False] * len(self.names)
        self.is_busy = self.is_over = False

    def _sides(self) -> list[tuple[Side, Side]]:
        return [(Side(predicate.is_range), Side(predicate.is_range)) for _, _, predicate in self.links]

    def least_memory(self) -> int:
        return ROOM_BYTES

    @property
    def room_bytes(self) -> int:
        """Of the budget, for rows."""
        return self.memory_bytes - ROOM_BYTES // 2

    def _check_arguments(self) -> None:
        if self.memory_bytes < self.least_memory():
            raise BudgetError(f"memory={self.memory_bytes} is too little; give memory={self.least_memory()}")
        for one, other, predicate in self.links:
            wanted = list(predicate.between or predicate.names), list(predicate.names.values())
            for number, names in zip((one, other), wanted, strict=True):
                missing = [name for name in names if name not in self.schemas[number].names]
                if missing:
                    raise SchemaError(f"the {self.names[number]} input has no column {missing[0]!r}")
            kinds = [self.schemas[other].field(name).type for name in wanted[1]]
            for name, of_other in zip(wanted[0], kinds * len(wanted[0]), strict=False):
                kind = self.schemas[one].field(name).type
                if pa.types.is_string(kind) and pa.types.is_integer(of_other):
                    raise SchemaError(f"{name} is {kind} on one side and {of_other} on the other; cast one")
            unordered = pa.types.is_string(kinds[0]) or pa.types.is_binary(kinds[0])
            if predicate.is_range and (len(kinds) > 1 or unordered):
                raise OptionError(f"a range needs a key with an order, not {wanted[1]}")

    # What arrives.

    def push(self, side: str, batch: pa.RecordBatch) -> Batches:
        self.check_open()
        number = self._number(side)
        self._check_batch(number, batch)
        return self._alone(self._push(number, batch))

    def _push(self, number: int, batch: pa.RecordBatch) -> Batches:
        self.counts["rows_in"] += len(batch)
        yield from self._take_in(number, batch)
        yield from self._take_offered()

    def offer(self, side: str, batch: pa.RecordBatch) -> bool:
        number = self._number(side)
        self._check_batch(number, batch)
        if len(self.offered) > 20:
            return False
        self.offered.append((number, batch))
        self.counts["rows_in"] += len(batch)
        self.counts["input_buffer_rows_max"] = max(self.counts["input_buffer_rows_max"], len(batch))
        return True

    def _take_offered(self) -> Batches:
        while self.offered:
            yield from self._take_in(*self.offered.popleft())

    def _take_in(self, number: int, batch: pa.RecordBatch) -> Batches:
        first = self.rows[number]
        self.batches[number].append(batch)
        self.rows[number] += len(batch)
        found = []
        for row, reaches in enumerate(self._reaches(number, batch), first):
            self.make_room(batch.slice(row - first, 1).nbytes)
            self.keep(number, row, reaches)
            found += self.results_of(number, row, self.held)
        yield from self.emitted(found, "online")

    def make_room(self, row_bytes: int) -> None:
        if self.used_bytes + row_bytes > self.room_bytes:
            self.counts["blocks_flushed"] += 1
            self.held = self._sides()
            self.used_bytes = 0
        self.used_bytes += row_bytes
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)

    def keep(self, number: int, row: int, reaches: dict[int, tuple[Any, Any]]) -> None:
        for link, reach in reaches.items():
            end = int(number == self.links[link][1])
            self.all[link][end].add(row, reach)
            self.held[link][end].add(row, reach)

    def _reaches(self, number: int, batch: pa.RecordBatch) -> Iterator[dict[int, tuple[Any, Any]]]:
        """For each row the keys it matches, by link; links for which it has none are left out."""
        of_links = {link: self.keys(link, number, batch) for link in self._links_of(number)}
        for row in range(len(batch)):
            yield {link: keys[row] for link, keys in of_links.items() if keys[row] is not None}

    def _links_of(self, number: int) -> list[int]:
        return [at for at, (one, other, _) in enumerate(self.links) if number in (one, other)]

    def keys(self, link: int, number: int, batch: pa.RecordBatch) -> list[Any]:
        one, other, predicate = self.links[link]
        table = pa.Table.from_batches([batch])
        kinds = [self.schemas[other].field(name).type for name in predicate.names.values()]
        if number == one and predicate.is_range:
            pairs = intervals(table, predicate, kinds[0])
            return [None if low is None or high is None or low > high else (low, high) for low, high in pairs]
        names = list(predicate.names) if number == one else list(predicate.names.values())
        if predicate.is_range:
            return [None if key is None else (key, key) for key in orders(table[names[0]], kinds[0])]
        keys = canonical_keys([table[name] for name in names], kinds)
        return [None if key is None else (key, key) for key in keys]

    # Results.

    def results_of(self, number: int, row: int, sides: list[tuple[Side, Side]]) -> list[Result]:
        """The results of a row of an input with these rows of the others."""
        found: list[dict[int, int]] = [{number: row}]
        reached = {number}
        while len(reached) < len(self.names):
            link, bound, other = self._next_link(reached)
            side = sides[link][int(other == self.links[link][1])]
            found = [
                {**rows, other: partner}
                for rows in found
                for partner in self._partners(side, self._reach_of(link, bound, rows[bound]))
            ]
            reached.add(other)
        return [tuple(rows[at] for at in range(len(self.names))) for rows in found]

    def _next_link(self, reached: set[int]) -> tuple[int, int, int]:
        """A link that leads from an input that was reached to one that was not."""
        return next(
            (at, *ends)
            for at, (one, other, _) in enumerate(self.links)
            for ends in ((one, other), (other, one))
            if ends[0] in reached and ends[1] not in reached
        )

    def _partners(self, side: Side, reach: tuple[Any, Any] | None) -> list[int]:
        return [] if reach is None else side.partners(reach)

    def _reach_of(self, link: int, number: int, row: int) -> Any:
        return self.all[link][int(number == self.links[link][1])].reach.get(row)

    def missing(self) -> list[Result]:
        """Results of all rows that have not been returned yet."""
        found = [result for row in range(self.rows[0]) for result in self.results_of(0, row, self.all)]
        return [result for result in found if result not in self.given]

    def emitted(self, results: list[Result], phase: str) -> Batches:
        self.given.update(results)
        for begin in range(0, len(results), 500):
            some = results[begin : begin + 500]
            columns = [np.array([result[at] for result in some], np.int64) for at in range(len(self.names))]
            batch = as_batch(self.shaped(self._tables(), columns).combine_chunks())
            self.counts["rows_out"] += len(batch)
            self.counts[f"results_{phase}"] += len(batch)
            yield batch

    def _tables(self) -> list[pa.Table]:
        return [
            pa.Table.from_batches(batches, schema).unify_dictionaries()
            for batches, schema in zip(self.batches, self.schemas, strict=True)
        ]

    def shaped(self, tables: list[pa.Table], rows: list[np.ndarray]) -> pa.Table:
        """Results in the form of the contract."""
        raise NotImplementedError

    # Pauses and the end.

    def idle(self, seconds: float) -> Batches:
        return self._alone(self._idle(seconds))

    def _idle(self, seconds: float) -> Batches:
        yield from self._take_offered()
        if self.counts["blocks_flushed"]:
            yield from self.emitted(self.missing(), "reactive")
        self.clock.sleep(seconds)

    def end(self, side: str) -> None:
        self.has_ended[self._number(side)] = True

    def finish(self) -> Batches:
        return self._alone(self._finish())

    def _finish(self) -> Batches:
        yield from self._take_offered()
        yield from self.emitted(self.missing(), "cleanup")
        self.is_over = True

    def run(self, arrivals: Iterable[Any]) -> Batches:
        for item in arrivals:
            if isinstance(item, Pause):
                yield from self.idle(item.seconds)
            elif item[1] is None:
                self.end(item[0])
            else:
                yield from self.push(*item)
        yield from self.finish()

    def close(self) -> None:
        self.is_over = True

    def metrics(self) -> dict[str, Any]:
        names = (
            *("rows_in", "rows_out", "pages_read", "seeks", "bytes_read", "blocks_flushed"),
            *("results_online", "results_reactive", "results_cleanup", "input_buffer_rows_max"),
        )
        return {name: self.counts[name] for name in names} | {
            "memory_bytes": self.memory_bytes,
            "peak_bytes": self.peak_bytes,
        }

    # Life.

    def check_open(self) -> None:
        if self.is_over:
            raise AdjoinError("the operator has ended; make a new one")

    def _alone(self, work: Batches) -> Batches:
        self.check_open()
        if self.is_busy:
            raise AdjoinError("consume the results of the call before first")
        self.is_busy = True
        return self._guarded(work)

    def _guarded(self, work: Batches) -> Batches:
        try:
            self.check_open()
            for batch in work:
                yield batch
                self.check_open()
        except BaseException:
            self.is_over = True
            raise
        finally:
            self.is_busy = False

    def _number(self, side: str) -> int:
        if side not in self.names:
            raise OptionError(f"side={side!r} is none of {self.names}")
        return self.names.index(side)

    def _check_batch(self, number: int, batch: pa.RecordBatch) -> None:
        if not batch.schema.equals(self.schemas[number]):
            raise SchemaError(f"a batch of the {self.names[number]} input has {batch.schema.names}")
        if self.has_ended[number]:
            raise AdjoinError(f"the {self.names[number]} input has ended")
        widest = max((batch.slice(row, 1).nbytes for row in range(len(batch))), default=0)
        if widest > self.room_bytes:
            enough = widest + ROOM_BYTES
            raise BudgetError(f"a row of {widest} bytes does not fit; give memory={enough} or more")

    # Snapshots.

    def snapshot(self) -> Iterator[tuple[str, bytes]]:
        yield "state", pickle.dumps({name: getattr(self, name) for name in self.state_names})

    state_names: tuple[str, ...] = (
        "counts",
        "peak_bytes",
        "used_bytes",
        "batches",
        "rows",
        "all",
        "held",
        "given",
        "has_ended",
    )

    def restore(self, values: Iterable[tuple[str, bytes]]) -> None:
        held = dict(values)
        if "state" not in held:
            raise CorruptionError("the snapshot has no value 'state'")
        vars(self).update(pickle.loads(held["state"]))


class Reference(Core):
    """Of two inputs."""

    def __init__(
        self,
        left: pa.Schema,
        right: pa.Schema,
        on: On,
        memory: int = 1 << 26,
        *,
        within: Any = None,
        between: tuple[str, str] | None = None,
        suffix: str = "_right",
        columns: Sequence[str] | None = None,
        clock: Any = None,
        **_: Any,
    ) -> None:
        self.predicate = Predicate(on, within, between)
        self.suffix, self.columns = suffix, columns
        super().__init__({"left": left, "right": right}, [(0, 1, self.predicate)], memory, clock)
        self.schema = self.shaped([left.empty_table(), right.empty_table()], [*NOTHING]).schema
        if len(set(self.schema.names)) < len(self.schema.names):
            raise SchemaError(f"a name is there twice in {self.schema.names}; choose another suffix")

    def shaped(self, tables: list[pa.Table], rows: list[np.ndarray]) -> pa.Table:
        left, right = tables
        whole = assembled(left, right, (rows[0], rows[1]), self.predicate, "inner", None, self.suffix)
        return _only(whole, self.columns)


class ManyReference(Core):
    """Of any number of inputs, joined on equal keys."""

    def __init__(
        self,
        relations: Mapping[str, pa.Schema],
        on: Sequence[str],
        memory: int,
        clock: Any = None,
        **options: Any,
    ) -> None:
        self.columns: Sequence[str] | None = options.get("columns")
        super().__init__(relations, _links_of(list(relations), on), memory, clock)
        nothing = [np.zeros(0, np.int64)] * len(relations)
        self.schema = self.shaped([schema.empty_table() for schema in self.schemas], nothing).schema

    def shaped(self, tables: list[pa.Table], rows: list[np.ndarray]) -> pa.Table:
        columns: dict[str, pa.ChunkedArray] = {}
        for name, table, numbers in zip(self.names, tables, rows, strict=True):
            some = taken(table, pa.array(numbers))
            columns |= {f"{name}_{column}": some[column] for column in some.column_names}
        return _only(pa.table(columns), self.columns)


def _only(table: pa.Table, columns: Sequence[str] | None) -> pa.Table:
    return table if columns is None else table.select([n for n in table.column_names if n in columns])


def _links_of(names: list[str], on: Sequence[str]) -> list[tuple[int, int, Predicate]]:
    """Equalities of the same two inputs make one key of several columns."""
    pairs: dict[tuple[int, int], dict[str, str]] = {}
    for condition in on:
        found = re.fullmatch(r'(\w+)\."([^"]+)" = (\w+)\."([^"]+)"', condition)
        assert found is not None, condition
        one, column, other, key = found.groups()
        pairs.setdefault((names.index(one), names.index(other)), {})[column] = key
    return [(one, other, Predicate(columns)) for (one, other), columns in pairs.items()]
