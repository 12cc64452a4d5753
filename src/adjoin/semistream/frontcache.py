"""The cache of a front stage: which of the master's rows it takes in, and how much of the join's memory."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from adjoin.kernels.search import locate_pages
from adjoin.kernels.types import Array
from adjoin.master.index import PageIndex
from adjoin.master.master import Master
from adjoin.parts.budget import MemoryBudget
from adjoin.parts.cachesizes import CacheSizes
from adjoin.parts.columns import Places
from adjoin.parts.groups import Groups
from adjoin.parts.pagememory import PageMemory
from adjoin.parts.tuplecache import TupleCache
from adjoin.semistream.cachedkeys import is_changed
from adjoin.semistream.paged import PagedJoin
from adjoin.semistream.pairs import PairsByKey, TurnCounts, pairs_by_key
from adjoin.semistream.residence import Residence
from adjoin.semistream.spec import JoinSpec

_FIRST_TIME, _SECOND_TIME, _MOST_TIMES = 1, 2, 64
_STEADY = 1.5
"""Heat is halved after every round: a key that answers n rows in each has between n and 2 n before that."""
_FEW_KEPT, _MANY_KEPT = 0.3, 0.6
"""Shares of the rows whose turn it is to go that stay because they were wanted."""


class FrontCache:
    """Rows of the master for a front stage, in memory that it shares with the join behind.

    Args:
        join: The join behind.
        pages: Its pages.
        budget: Its budget; this class keeps the account "front".
        spec: The join.
        most_bytes: What it may take at most.
        memory: Where the rows lie; private memory by default.

    Attributes:
        rows: The rows; None while there is no memory for any.
    """

    def __init__(
        self,
        join: PagedJoin,
        pages: Residence,
        budget: MemoryBudget,
        spec: JoinSpec,
        most_bytes: int,
        memory: PageMemory | None,
    ) -> None:
        self._join = join
        self._pages = pages
        self._budget = budget
        self._spec = spec
        self._most_bytes = most_bytes
        self._memory = memory
        self.rows: TupleCache | None = None
        self._is_asking = False
        self._enough = _FIRST_TIME
        self._passed_rows = 0
        self._this_turn = TurnCounts()
        self._open()
        pages.guest = self

    def __len__(self) -> int:
        return 0 if self.rows is None else len(self.rows)

    def _open(self) -> None:
        """Begin with no rows, if the join can use some and there is room."""
        master = self._pages.master
        if not self._spec.predicate.is_equality or master.rows == 0:
            return
        schema = _schema_of(master, self._spec)
        row_bytes = max(16, master.pages * master.page_bytes // master.rows)
        sizes = CacheSizes.of(schema, self._most_bytes, row_bytes)
        if sizes is not None and self._ask(sizes.fixed_bytes):
            self.rows = TupleCache(schema, sizes, self._ask, self._memory)
            self._join.observe(self._observe)

    def refresh(self, before: PageIndex) -> None:
        """The join behind goes on with another version; this was the index of the one before."""
        if self.rows is None:
            self._open()
        else:
            keys = self.rows.keys()
            self.rows.drop(keys[is_changed(keys, before, self._pages.master.index)])

    def close(self) -> None:
        """Let go of the memory."""
        if self.rows is not None:
            self.rows.close()

    def check_invariants(self) -> None:
        """Raise AssertionError if a structure contradicts itself or its account."""
        held_bytes = 0
        if self.rows is not None:
            self.rows.check_invariants()
            held_bytes = self.rows.bytes
        assert self._budget.account("front") == held_bytes

    # Memory.

    def _ask(self, more_bytes: int) -> bool:
        """Take so many bytes of the budget for the cache, at the cost of pages."""
        self._is_asking = True
        self._join.cede(self._budget.account("front") + more_bytes)
        try:
            if not self._pages.make_room(more_bytes):
                return False
        finally:
            self._is_asking = False
        self._budget.add("front", more_bytes)
        return True

    def give_way(self, lacking_bytes: int) -> None:
        """Let the join behind have so many bytes."""
        if self.rows is None or self._is_asking:
            return
        freed_bytes = self._give_back(self.rows, lacking_bytes)
        if freed_bytes < lacking_bytes:
            self.rows.close()
            self.rows = None
            self._join.observe(None)
            self._budget.set("front", 0)
            self._join.cede(0)

    def _give_back(self, rows: TupleCache, wanted_bytes: int) -> int:
        freed_bytes = rows.give_back(wanted_bytes)
        self._budget.add("front", -freed_bytes)
        self._join.cede(self._budget.account("front"))
        return freed_bytes

    # Rows come and go.

    def _observe(self, keys: Array, stream_row: Array, places: Places) -> None:
        """Cache the master's rows of keys that were seen often enough."""
        assert self.rows is not None
        joined = pairs_by_key(keys, stream_row)
        seen = self.rows.count(joined.keys, joined.times)
        chosen = (seen >= self._enough) & ~self.rows.knows(joined.keys)
        if self._join.waiting_row_bytes:
            chosen &= self._this_turn.count(self._join.turn, joined) >= self._times_worth(self.rows)(
                joined.rows
            )
        chosen[chosen] = self._are_whole(joined.keys[chosen])
        if chosen.any():
            self.rows.put(self._groups(self.rows.schema, joined, chosen, places))
            self._adapt(self.rows)

    def _adapt(self, rows: TupleCache) -> None:
        """Ask more of new rows when old ones that are wanted go for them, less when old ones are not."""
        if not rows.is_full:
            self._enough = _FIRST_TIME
        elif rows.kept_share > _MANY_KEPT:
            self._enough = min(self._enough + 1, _MOST_TIMES)
        elif rows.kept_share < _FEW_KEPT:
            self._enough = max(self._enough - 1, _SECOND_TIME)

    def _times_worth(self, rows: TupleCache) -> Callable[[Array], Array | float]:
        """How many stream rows at a time make so many master rows of a key worth their memory."""
        saved_bytes = self._join.waiting_row_bytes
        return lambda count: rows.group_bytes(count) / saved_bytes if saved_bytes else 0.0

    def pass_on(self, stream_rows: int) -> None:
        """Rows went on to the join behind; once they are as many as its queue holds, a round is over.

        What did not answer enough rows in a round gives its memory back.
        """
        self._passed_rows += stream_rows
        if self.rows is None or self._passed_rows < self._join.rows_of_a_round:
            return
        self._passed_rows = 0
        worth = self._times_worth(self.rows)
        if self.rows.forget(lambda count: _STEADY * worth(count)):
            self._give_back(self.rows, self.rows.free_bytes)

    def _are_whole(self, keys: Array) -> Array:
        """Whether all rows of each key are on one page; keys ascend."""
        index = self._pages.index
        start, stop = locate_pages(keys, keys, index.first, index.last)
        return stop - start == 1

    def _groups(self, schema: pa.Schema, joined: PairsByKey, chosen: Array, places: Places) -> Groups:
        """The master's rows of the chosen keys, as many as the work of a step has room for."""
        pages = self._pages
        limit_bytes = pages.split.output_bytes // 4
        at = joined.pairs[np.repeat(chosen, joined.rows)]
        rows = joined.rows[chosen]
        wanted = Places(places.slots[at], places.rows[at])
        names = schema.names[1:]
        sizes = np.zeros(len(at), np.int64)
        for name in names:
            sizes += pages.columns.value_bytes(pages.column(name), wanted)
        ends = np.cumsum(rows)
        groups = int(np.searchsorted(np.cumsum(sizes)[ends - 1], limit_bytes, "right"))
        keys, rows = joined.keys[chosen][:groups], rows[:groups]
        wanted = wanted.slice(0, int(rows.sum()))
        arrays = [pages.columns.take(pages.column(name), wanted) for name in names]
        batch = pa.RecordBatch.from_arrays([pa.array(np.repeat(keys, rows)), *arrays], schema=schema)
        return Groups(keys, rows, batch, np.zeros(groups, np.uint8))


def _schema_of(master: Master, spec: JoinSpec) -> pa.Schema:
    """The encoded key, and the columns that are put out or compared."""
    names = dict.fromkeys((*spec.columns, *spec.verified))
    stored = [master.stored_schema.field(name) for name in names]
    fields = [pa.field(field.name, _storage(field.type), field.nullable) for field in stored]
    return pa.schema([pa.field("_adjoin_key", pa.int64(), False), *fields])


def _storage(type_: pa.DataType) -> pa.DataType:
    return type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_
