"""The cache of a front stage: which master rows it takes, and how much of the join's memory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin.errors import AdjoinError, ArenaError, CorruptionError
from adjoin.kernels.types import Array
from adjoin.master.index import CheckedIndex
from adjoin.master.master import Master
from adjoin.memory.page_columns import Places
from adjoin.memory.page_memory import PageMemory
from adjoin.operators.portions import portions
from adjoin.semistream.base.join import JoinParts
from adjoin.semistream.base.queue import QueueRoom
from adjoin.semistream.base.spec import JoinSpec
from adjoin.semistream.frontstage.key_table import KeyTable
from adjoin.semistream.frontstage.rows_by_key import RowsByKey
from adjoin.semistream.frontstage.tuple_cache import CacheSizes, TupleCache
from adjoin.semistream.pages.resident import LENT_ACCOUNT
from adjoin.semistream.pages.same_pages import is_changed

_LEAST_ROW_BYTES, _KEY_BYTES = 16, 8
_STEADY = 1.5
"""Heat is halved after every round: just before, a key with n rows per round has between n and 2 n."""


@dataclass(frozen=True)
class PairsByKey:
    """Pairs of stream and master rows by key.

    Attributes:
        keys: The encoded keys, ascending.
        times: The number of stream rows of each key.
        rows: The number of master rows that the first stream row of each was joined with.
        pairs: The pairs of these first stream rows, in key order.
    """

    keys: Array
    times: Array
    rows: Array
    pairs: Array


def pairs_by_key(keys: Array, stream_row: Array) -> PairsByKey:
    """Order pairs by key; those of one stream row are adjacent."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    pairs = np.diff(np.concatenate([starts, [len(order)]]))
    rows_of = stream_row[order]
    is_first = rows_of == np.repeat(rows_of[starts], pairs)
    rows = np.add.reduceat(is_first, starts, dtype=np.int32)
    return PairsByKey(ordered[starts], pairs // rows, rows, order[is_first])


class TurnCounts:
    """The stream rows of each key in one turn of pages, which can be joined in several steps.

    If there are more keys than there is room for, those with the fewest rows are forgotten.
    """

    _BYTES = 48
    """Of a key: the key and its count, and two more copies of both while others are added."""

    def __init__(self) -> None:
        self._turn = -1
        self._keys: Array = np.empty(0, np.int64)
        self._times: Array = np.empty(0, np.int64)

    def count(self, turn: int, joined: PairsByKey, room_bytes: int) -> Array:
        """The rows of these keys in this turn so far, including the new ones."""
        if turn != self._turn:
            self._turn = turn
            self._keep(joined.keys, joined.times, room_bytes)
            return joined.times
        keys, place = np.unique(np.concatenate([self._keys, joined.keys]), return_inverse=True)
        times = np.bincount(place, np.concatenate([self._times, joined.times]), len(keys)).astype(np.int64)
        self._keep(keys, times, room_bytes)
        return times[np.searchsorted(keys, joined.keys)]

    def _keep(self, keys: Array, times: Array, room_bytes: int) -> None:
        most = max(1, room_bytes // self._BYTES)
        if len(keys) > most:
            stay = np.sort(np.argpartition(times, len(keys) - most)[len(keys) - most :])
            keys, times = keys[stay], times[stay]
        self._keys, self._times = keys, times


class FrontCache:
    """The cached master rows of a front stage, in memory that it shares with the join behind.

    Args:
        parts: What the join is made of; this class keeps the account "front" of its budget.
        room: The memory of the queue in which its rows wait; None if there is no queue.
        least_bytes: What the join needs in any case.
        share: The most that the cache may take, as a share of all other memory.
        memory: Memory for the rows. If it outlives its users, the rows that the last one left are there from
            the start, as far as this version of the master has them.

    Attributes:
        rows: The rows; None while there is no memory for any.
    """

    def __init__(
        self,
        parts: JoinParts,
        room: QueueRoom | None,
        least_bytes: int,
        share: float,
        memory: PageMemory,
    ) -> None:
        self._pages = parts.pages
        self._budget = parts.budget
        self._spec = parts.spec
        self._room = room
        self._share = share
        self._most_bytes = int((parts.budget.total_bytes - least_bytes) * share)
        self._memory = memory
        self.rows: TupleCache | None = None
        self._is_held = False
        self._is_closed = False
        self._passed_rows = 0
        self._this_turn = TurnCounts()
        left = memory.recall(self._key)
        if left is None or not self._can_resume(left):
            self._forget()
            self._open()
        self._pages.borrower = self

    def __len__(self) -> int:
        return 0 if self.rows is None else len(self.rows)

    def _open(self) -> None:
        """Start with an empty cache, if the join can use one and there is room."""
        master = self._pages.master
        if not self._spec.predicate.is_equality or master.rows == 0:
            return
        schema = _schema_of(master, self._spec)
        row_bytes = max(_LEAST_ROW_BYTES, int(_bytes_of_row(master, schema)))
        sizes = CacheSizes.of(schema, self._most_bytes, row_bytes, self._memory)
        if sizes is not None and self._ask(sizes.fixed_bytes):
            self.rows = TupleCache(schema, sizes, self._ask, self._memory)
            self._pages.observer = self._observe

    def _forget(self) -> None:
        """Give all memory to the join behind."""
        if self.rows is not None:
            self.rows.close()
            self.rows = None
        self._memory.empty()
        self._pages.observer = None
        self._budget.set(LENT_ACCOUNT, 0)
        self._cede(0)

    def refresh(self, before: CheckedIndex) -> None:
        """The join behind has moved on to another version; `before` is the index of the previous one."""
        if self.rows is None:
            self._open()
        else:
            keys = self.rows.keys()
            self.rows.drop(keys[is_changed(keys, before, self._pages.master.checked_index)])

    def close(self, *, is_sound: bool) -> None:
        """Release the memory; if it outlives its users, leave the rows unless something went wrong."""
        if self._is_closed:
            return
        self._is_closed = True
        if self.rows is not None:
            if is_sound and self._memory.outlives:
                with suppress(
                    ArenaError, CorruptionError
                ):  # no room for what was on the way: nothing is left
                    self._leave(self.rows)
            self.rows.close()

    def check_invariants(self) -> None:
        """Raise AssertionError if a structure contradicts itself or its account."""
        held_bytes = 0
        if self.rows is not None:
            self.rows.check_invariants()
            held_bytes = self.rows.bytes
        assert self._budget.account(LENT_ACCOUNT) == held_bytes

    # Rows that are left for the next operator.

    @property
    def _key(self) -> str:
        """Identifies caches that can use each other's rows."""
        # A semi join stops at the first row of a key, so the others may be missing.
        facts = (
            self._budget.total_bytes,
            self._share,
            self._spec.how,
            self._spec.predicate.is_equality,
            [field.name for field in fields(CacheSizes)],
        )
        schema = _schema_of(self._pages.master, self._spec)
        return blake2b(repr(facts).encode() + schema.serialize(), digest_size=16).hexdigest()

    def _leave(self, rows: TupleCache) -> None:
        self._pages.check_memory()
        master = self._pages.master
        left = {
            "version": master.version,
            "index": master.index_name,
            "rows": rows.leave(),
        }
        self._memory.leave(left)

    def _can_resume(self, left: dict[str, Any]) -> bool:
        """Continue with the rows that the last user left; False if they do not fit or were changed."""
        try:
            return self._resume(left)
        except CorruptionError:
            return False

    def _resume(self, left: dict[str, Any]) -> bool:
        """Continue with the rows that the last user left; False if it is unknown which are outdated."""
        master = self._pages.master
        rows = TupleCache.resume(_schema_of(master, self._spec), left["rows"], self._ask, self._memory)
        self.rows = rows
        if left["index"] != master.index_name:
            try:
                with master.at(left["version"]) as before:
                    if before.index_name != left["index"]:
                        return False
                    self.refresh(before.checked_index)
            except AdjoinError:
                return False
        self._pages.observer = self._observe
        self._cede(rows.bytes)
        return True

    # Memory.

    def _cede(self, wanted_bytes: int) -> None:
        """Let the queue have this much less, as soon as enough rows have left."""
        if self._room is not None:
            self._room.ceded_bytes = wanted_bytes

    @property
    def _saved_bytes(self) -> float:
        """Memory of the queue that is saved if a row need not wait; 0 if rows do not wait for memory."""
        return 0.0 if self._room is None else self._room.row_bytes

    def _ask(self, more_bytes: int) -> bool:
        """Take this much of the budget for the cache, at the expense of pages."""
        self._cede(self._budget.account(LENT_ACCOUNT) + more_bytes)
        with self.held():
            if not self._pages.make_room(more_bytes):
                return False
        self._budget.add(LENT_ACCOUNT, more_bytes)
        return True

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within this context, the cache gives nothing back and no row moves."""
        before, self._is_held = self._is_held, True
        try:
            yield
        finally:
            self._is_held = before

    def give_way(self, lacking_bytes: int) -> None:
        """Give this many bytes back to the join behind."""
        if self.rows is None or self._is_held:
            return
        if self._give_back(self.rows, lacking_bytes) < lacking_bytes:
            self._forget()

    def _give_back(self, rows: TupleCache, wanted_bytes: int) -> int:
        freed_bytes = rows.give_back(wanted_bytes)
        self._budget.add(LENT_ACCOUNT, -freed_bytes)
        self._cede(self._budget.account(LENT_ACCOUNT))
        return freed_bytes

    # Rows come and go.

    def _observe(self, keys: Array, stream_row: Array, places: Places) -> None:
        """Cache the master rows of keys that were seen often enough and are not in memory anyway."""
        assert self.rows is not None
        if self._saved_bytes:
            waited = ~self._pages.cache.is_cached(places.slots)
            keys, stream_row = keys[waited], stream_row[waited]
            places = Places(places.slots[waited], places.rows[waited])
            if len(keys) == 0:
                return
        joined = pairs_by_key(keys, stream_row)
        seen = self.rows.count(joined.keys, joined.times)
        chosen = (seen >= self.rows.least_seen) & ~self.rows.knows(joined.keys)
        heat = np.zeros(len(chosen), np.uint8)
        if self._room is not None and self._saved_bytes:
            times = self._this_turn.count(self._room.iterations, joined, self.rows.counting_bytes)
            chosen &= times >= self._times_worth(self.rows)(joined.rows)
            heat = np.minimum(times, KeyTable.most_heat).astype(np.uint8)
        chosen[chosen] = self._are_whole(joined, chosen, places)
        if chosen.any():
            for groups in self._groups(self.rows.schema, joined, chosen, places, heat[chosen]):
                self.rows.put(groups)

    def _times_worth(self, rows: TupleCache) -> Callable[[Array], Array | float]:
        """For numbers of master rows of a key: the stream rows at a time that are worth their memory."""
        saved_bytes = self._saved_bytes
        return lambda count: rows.group_bytes(count) / saved_bytes if saved_bytes else 0.0

    def pass_on(self, stream_rows: int) -> None:
        """Count rows that went to the join behind; a round ends when they are as many as its queue holds.

        Keys that have not answered enough rows in a round give their memory back.
        """
        self._passed_rows += stream_rows
        if self.rows is None or self._room is None or self._passed_rows < self._room.rows_per_round:
            return
        self._passed_rows = 0
        worth = self._times_worth(self.rows)
        if self.rows.forget(lambda count: _STEADY * worth(count)):
            self._give_back(self.rows, self.rows.free_bytes)

    def _are_whole(self, joined: PairsByKey, chosen: Array, places: Places) -> Array:
        """Whether the pairs of each chosen (ascending) key are on all pages that may have rows of it.

        A key that fills pages is left to the join behind if that keeps the pages that are wanted most.
        """
        keys = joined.keys[chosen]
        start, stop = self._pages.index.locate(keys, keys)
        owner = np.repeat(np.arange(len(chosen)), joined.rows)
        slots = places.slots[joined.pairs].astype(np.int64)
        pages = np.unique((owner << 32 | slots)[chosen[owner]]) >> 32
        here = np.bincount(pages, minlength=len(chosen))[chosen]
        return (here == stop - start) & ((here == 1) | bool(self._saved_bytes))

    def _groups(
        self, schema: pa.Schema, joined: PairsByKey, chosen: Array, places: Places, heat: Array
    ) -> Iterator[RowsByKey]:
        """The master rows of the chosen keys, as many at a time as fit into the memory of a step."""
        pages = self._pages
        limit_bytes = pages.split.output_bytes // 4
        at = joined.pairs[np.repeat(chosen, joined.rows)]
        keys, rows = joined.keys[chosen], joined.rows[chosen]
        wanted = Places(places.slots[at], places.rows[at])
        columns = [pages.column(name) for name in schema.names[1:]]
        sizes = np.zeros(len(at), np.int64)
        for column in columns:
            sizes += pages.columns.value_bytes(column, wanted)
        ends = np.concatenate([[0], np.cumsum(rows)])
        sizes = np.add.reduceat(sizes, ends[:-1])
        for begin, end in portions(sizes, limit_bytes):
            if sizes[begin] > limit_bytes:
                continue
            some = wanted.slice(int(ends[begin]), int(ends[end]))
            arrays = [pages.columns.take(column, some) for column in columns]
            key = pa.array(np.repeat(keys[begin:end], rows[begin:end]))
            batch = pa.RecordBatch.from_arrays([key, *arrays], schema=schema)
            yield RowsByKey(keys[begin:end], rows[begin:end], batch, heat[begin:end])


def _schema_of(master: Master, spec: JoinSpec) -> pa.Schema:
    """The encoded key, and the columns that are emitted or compared."""
    names = dict.fromkeys((*spec.columns, *spec.verified))
    stored = [master.stored_schema.field(name) for name in names]
    fields = [pa.field(field.name, _storage(field.type), field.nullable) for field in stored]
    return pa.schema([pa.field("_adjoin_key", pa.int64(), False), *fields])


def _bytes_of_row(master: Master, cached: pa.Schema) -> float:
    """Roughly what is cached of a row: columns of variable width share what the fixed ones leave of it."""
    row_bytes = master.pages * master.page_bytes / master.rows
    widths = {field.name: _width(field.type) for field in master.stored_schema}
    fixed_bytes = sum(width for width in widths.values() if width)
    flexible = max(1.0, row_bytes - fixed_bytes) / max(1, sum(not width for width in widths.values()))
    sizes = {name: width or flexible for name, width in widths.items()}
    cached_bytes = _KEY_BYTES + sum(sizes[name] for name in cached.names[1:])
    return min(row_bytes, row_bytes * cached_bytes / sum(sizes.values()))


def _width(type_: pa.DataType) -> float:
    """Bytes of a value; 0 if they differ."""
    try:
        return float(type_.bit_width / 8)
    except ValueError:
        return 0.0


def _storage(type_: pa.DataType) -> pa.DataType:
    return type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_
