"""An oracle for joins that return all results at once: rows in plain arrays, every pair compared."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin import DINER

LEFT, RIGHT = 0, 1
SIDES = ("left", "right")
NONE = -1
"""The number of a row that a result lacks."""
NO_TIME = np.iinfo(np.int64).min


@dataclass
class Rows:
    """Rows of one side, as the oracle sees them.

    Attributes:
        low, high: The interval of keys.
        has_key: Whether they can match anything.
        time: Their times.
        number: Their numbers in the order of arrival.
        row: Their numbers on their side, which results show.
        matched: Whether they had a match.
        is_due: Whether the next expiry removes them.
    """

    low: Any = field(default_factory=lambda: np.empty(0, np.int64))
    high: Any = field(default_factory=lambda: np.empty(0, np.int64))
    has_key: Any = field(default_factory=lambda: np.empty(0, bool))
    time: Any = field(default_factory=lambda: np.empty(0, np.int64))
    number: Any = field(default_factory=lambda: np.empty(0, np.int64))
    row: Any = field(default_factory=lambda: np.empty(0, np.int64))
    matched: Any = field(default_factory=lambda: np.empty(0, bool))
    is_due: Any = field(default_factory=lambda: np.empty(0, bool))

    def at(self, chosen: Any) -> "Rows":
        return Rows(**{name: values[chosen] for name, values in vars(self).items()})

    def __add__(self, other: "Rows") -> "Rows":
        return Rows(**{name: np.concatenate([mine, vars(other)[name]]) for name, mine in vars(self).items()})

    def __len__(self) -> int:
        return len(self.low)


class Model:
    """What a complete join must return, as counts of pairs of row numbers.

    Args:
        how: Which rows are results.
        bounds: Before and after, if times are bounded.
    """

    def __init__(self, how: str, bounds: tuple[int | None, int | None] | None) -> None:
        self.how, self.bounds = how, bounds
        self.kept = [Rows(), Rows()]
        self.keep_from: list[int | None] = [None, None]
        self.next = 0
        self.is_logging = False
        self.new_matches: list[list[int]] = [[], []]
        self.preserved = how in {"left", "full", "anti"}, how in {"right", "full"}
        self.marked = self.preserved[LEFT] or how == "semi", self.preserved[RIGHT]
        self.leaves = how in {"semi", "anti"}, False

    def push(self, side: int, rows: Rows) -> Counter:
        rows.number = self.next + np.arange(len(rows))
        self.next += len(rows)
        others = self.kept[1 - side]
        mine, theirs = self._partners(side, rows, others)
        first_mine, first_theirs = np.zeros(len(rows), bool), np.zeros(len(others), bool)
        first_mine[mine], first_theirs[theirs] = True, True
        first_theirs &= ~others.matched
        rows.matched = first_mine
        others.matched |= first_theirs
        self._note(side, rows.number[first_mine])
        self._note(1 - side, others.number[first_theirs])
        found: Counter = Counter()
        if self.how == "semi":
            left = rows.row[first_mine] if side == LEFT else others.row[first_theirs]
            found = Counter((int(row), NONE) for row in left)
        elif self.how != "anti":
            pairs = zip(rows.row[mine].tolist(), others.row[theirs].tolist(), strict=True)
            found = Counter(pair if side == LEFT else pair[::-1] for pair in pairs)
        if self.leaves[1 - side]:
            self.kept[1 - side] = others.at(~others.matched)
        self.keep(side, rows)
        return found

    def keep(self, side: int, rows: Rows) -> None:
        """Keep rows that have been joined."""
        limit = self.keep_from[side]
        stays = np.ones(len(rows), bool)
        rows.is_due = np.zeros(len(rows), bool)
        if self.bounds is not None:
            rows.is_due = rows.time == NO_TIME
            rows.has_key = rows.has_key & ~rows.is_due
            if limit is not None:
                late = rows.time < limit
                stays &= ~(late & (rows.matched | (not self.preserved[side])))
                rows.is_due |= late
                rows.has_key = rows.has_key & ~late
        if not self.preserved[side]:
            stays &= rows.has_key
        if self.leaves[side]:
            stays &= ~rows.matched
        self.kept[side] += rows.at(stays)

    def _note(self, side: int, numbers: Any) -> None:
        if self.marked[side]:
            self.new_matches[side] += numbers.tolist()

    def _partners(self, side: int, rows: Rows, others: Rows) -> tuple[Any, Any]:
        matches = (rows.low[:, None] <= others.high) & (others.low <= rows.high[:, None])
        matches &= rows.has_key[:, None] & others.has_key
        if self.bounds is not None:
            before, after = self.bounds
            matches &= (rows.time[:, None] != NO_TIME) & (others.time != NO_TIME)
            difference = others.time - rows.time[:, None]
            difference = difference if side == LEFT else -difference
            if before is not None:
                matches &= difference >= -before
            if after is not None:
                matches &= difference <= after
        return matches.nonzero()

    def expire_rows(self, before: tuple[int | None, int | None]) -> Counter:
        found: Counter = Counter()
        for side, limit in enumerate(before):
            rows = self.kept[side]
            gone = rows.is_due if limit is None else rows.is_due | (rows.time < limit)
            found += self._alone(side, rows.at(gone))
            self.kept[side] = rows.at(~gone)
        return found

    def expire(self, moment: int) -> Counter:
        assert self.bounds is not None
        before, after = self.bounds
        return self.expire_rows(
            (None if after is None else moment - after, None if before is None else moment - before)
        )

    def finish(self) -> Counter:
        return self._alone(LEFT, self.kept[LEFT]) + self._alone(RIGHT, self.kept[RIGHT])

    def newly_matched(self) -> list[list[int]]:
        if not self.is_logging:
            self.new_matches = [
                [] if self.leaves[side] else rows.number[rows.matched].tolist() if self.marked[side] else []
                for side, rows in enumerate(self.kept)
            ]
        self.is_logging = True
        found = [sorted(numbers) for numbers in self.new_matches]
        self.new_matches = [[], []]
        return found

    def _alone(self, side: int, rows: Rows) -> Counter:
        if not self.preserved[side]:
            return Counter()
        alone = rows.row[~rows.matched].tolist()
        return Counter((row, NONE) if side == LEFT else (NONE, row) for row in alone)


@dataclass(frozen=True)
class Keys:
    """A kind of keys.

    Attributes:
        columns: The key columns of a side, from its keys and a random generator.
        options: Arguments of the join.
        reach: The interval of keys that a left row matches.
    """

    columns: Any
    options: dict[str, Any]
    reach: Any = None


def _nulled(values: list, nulls: Any) -> list:
    return [None if null else value for value, null in zip(values, nulls, strict=True)]


def integers(side: int, keys: Any, nulls: Any) -> dict[str, pa.Array]:
    return {"k": pa.array(_nulled(keys.tolist(), nulls), pa.int64())}


def strings(side: int, keys: Any, nulls: Any) -> dict[str, pa.Array]:
    return {"k": pa.array(_nulled([f"key {key}" for key in keys.tolist()], nulls), pa.string())}


def composites(side: int, keys: Any, nulls: Any) -> dict[str, pa.Array]:
    words = [f"{key % 7}" for key in keys.tolist()]
    return {
        "k": pa.array((keys // 7).tolist(), pa.int32() if side == LEFT else pa.int64()),
        "w": pa.array(_nulled(words, nulls), pa.string()),
    }


def floats(side: int, keys: Any, nulls: Any) -> dict[str, pa.Array]:
    values = [float("nan") if key == 3 else -0.0 if key == 0 and side else key / 4 for key in keys.tolist()]
    return {"k": pa.array(_nulled(values, nulls), pa.float64())}


def ranges(side: int, keys: Any, nulls: Any) -> dict[str, pa.Array]:
    if side == RIGHT:
        return integers(side, keys, nulls)
    low, high = reach_of_ranges(keys)
    return {
        "begin": pa.array(_nulled(low.tolist(), nulls), pa.int64()),
        "end": pa.array(high.tolist(), pa.int64()),
    }


def reach_of_ranges(keys: Any) -> tuple[Any, Any]:
    """Mostly short intervals; some are long, some empty."""
    return keys, keys + np.where(keys % 31 == 5, 40, np.where(keys % 17 == 3, -1, keys % 4))


KEYS = {
    "integers": Keys(integers, {"on": "k"}),
    "strings": Keys(strings, {"on": "k"}),
    "composites": Keys(composites, {"on": ["k", "w"]}),
    "floats": Keys(floats, {"on": "k"}),
    "within": Keys(integers, {"on": "k", "within": 2}, lambda keys: (keys - 2, keys + 2)),
    "between": Keys(ranges, {"on": "k", "between": ("begin", "end")}, reach_of_ranges),
}


class Pair:
    """A join and its oracle, given the same rows.

    Args:
        seed: Determines all rows.
        kind: The kind of keys.
        how: Which rows are results.
        bounds: Before and after, if times are bounded.
        keys: How many different keys there are.
        width: The greatest width of the strings that fill the memory.
        options: Arguments of the join.
    """

    def __init__(
        self,
        seed: int,
        kind: str,
        how: str,
        bounds: tuple[int | None, int | None] | None,
        keys: int = 300,
        width: int = 90,
        **options: Any,
    ) -> None:
        self.random = np.random.default_rng(seed)
        self.kind, self.keys, self.width = KEYS[kind], keys, width
        self.model = Model(how, bounds)
        self.clock = 1_000
        self.rows = [0, 0]
        self.batches: list[list[pa.RecordBatch]] = [[], []]
        if bounds is not None:
            options |= {"time": ("t", "t"), "before": bounds[0], "after": bounds[1]}
        schemas = [self._batch(side, 0)[0].schema for side in (LEFT, RIGHT)]
        small = {"memory": "450KB", "block_bytes": 4096}
        self.options = {**small, "results": "complete", "how": how, **self.kind.options, **options}
        self.schemas = schemas
        self.join = self.new()

    def new(self) -> DINER:
        return DINER(*self.schemas, **self.options)

    def _batch(self, side: int, rows: int) -> tuple[pa.RecordBatch, Rows]:
        random = self.random
        keys, nulls = random.integers(0, self.keys, rows), random.random(rows) < 0.04
        time = self.clock + random.integers(-30, 30, rows)
        time = np.where(random.random(rows) < 0.01, time + 10_000, time)
        timeless = random.random(rows) < 0.03
        number = self.rows[side] + np.arange(rows)
        self.rows[side] += rows
        columns = {
            **self.kind.columns(side, keys, nulls),
            "t": pa.array(_nulled(time.tolist(), timeless), pa.int64()),
            "l" if side == LEFT else "r": pa.array(number, pa.int64()),
            f"text{side}": pa.array(["x" * n for n in random.integers(0, self.width, rows)], pa.string()),
        }
        low, high = keys, keys
        if side == LEFT and self.kind.reach is not None:
            low, high = self.kind.reach(keys)
        seen = Rows(
            low=low,
            high=high,
            has_key=~nulls & (low <= high),
            time=np.where(timeless, NO_TIME, time),
            row=number,
            number=number,
            matched=np.zeros(rows, bool),
            is_due=np.zeros(rows, bool),
        )
        batch = pa.record_batch(columns)
        self.batches[side].append(batch)
        return batch, seen

    def push(self, side: int, rows: int) -> None:
        batch, seen = self._batch(side, rows)
        found = counted(self.join.push(SIDES[side], batch))
        assert found == self.model.push(side, seen)
        self.check()

    def expire(self, moment: int) -> None:
        assert counted(self.join.expire(moment)) == self.model.expire(moment)
        self.check()

    def expire_rows(self, left: int | None, right: int | None) -> None:
        assert counted(self.join.expire_rows(left, right)) == self.model.expire_rows((left, right))
        self.check()

    def keep_only(self, left: int | None, right: int | None) -> None:
        self.join.keep_only(left, right)
        self.model.keep_from = [left, right]

    def newly_matched(self) -> None:
        assert [side.tolist() for side in self.join.newly_matched()] == self.model.newly_matched()

    def restore(self) -> None:
        """Continue in a new operator, from a snapshot."""
        before, self.join = self.join, self.new()
        self.join.restore(before.snapshot())
        before.close()
        self.check()

    def rebuild(self) -> None:
        """Continue in a new operator, into which the rows that are kept are loaded."""
        if self.model.bounds is not None:
            self.expire_rows(None, None)  # rows that are due are not put back
        self.newly_matched()
        self.join.close()
        self.join = self.new()
        for side, name in enumerate(("l", "r")):
            kept = self.model.kept[side]
            table = pa.Table.from_batches(self.batches[side], self.schemas[side]).take(pa.array(kept.row))
            at = 0
            for batch in table.combine_chunks().to_batches(max_chunksize=200):
                part = slice(at, at + batch.num_rows)
                assert batch[name].to_pylist() == kept.row[part].tolist()
                self.join.load(SIDES[side], batch, kept.number[part], kept.matched[part])
                at += batch.num_rows
        if self.model.bounds is not None:
            self.join.keep_only(*self.model.keep_from)
        self.model.next = self.join.next_row_number
        assert [len(side) for side in self.join.newly_matched()] == self._matched_now()
        self.check()

    def _matched_now(self) -> list[int]:
        """How many rows the first call of `newly_matched` finds."""
        marked, leaves = self.model.marked, self.model.leaves
        return [
            int(rows.matched.sum()) * (marked[side] and not leaves[side])
            for side, rows in enumerate(self.model.kept)
        ]

    def check(self) -> None:
        self.join.check_invariants()
        metrics = self.join.metrics()
        assert metrics["peak_bytes"] <= metrics["memory_bytes"]
        assert self.join.next_row_number == self.model.next
        assert metrics["rows_kept"] >= sum(map(len, self.model.kept))

    def __enter__(self) -> "Pair":
        return self

    def __exit__(self, *_: object) -> None:
        self.join.close()

    def finish(self) -> None:
        assert counted(self.join.finish()) == self.model.finish()
        self.join.close()


def counted(batches: Any) -> Counter:
    """Results as pairs of the numbers of their rows."""
    found: Counter = Counter()
    for batch in batches:
        assert batch.num_rows
        sides = [
            batch[name].fill_null(NONE).to_pylist() if name in batch.schema.names else [NONE] * batch.num_rows
            for name in ("l", "r")
        ]
        found.update(zip(*sides, strict=True))
    return found
