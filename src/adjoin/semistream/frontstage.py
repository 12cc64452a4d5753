"""The front stage: a cache of master rows before any other join."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from adjoin.errors import OptionError
from adjoin.kernels.search import locate_pages
from adjoin.kernels.tuples import EMPTY
from adjoin.kernels.types import Array
from adjoin.master.index import PageIndex
from adjoin.master.keys import KeyCodec
from adjoin.master.master import Master
from adjoin.parts.clock import Pause
from adjoin.parts.columns import Places
from adjoin.parts.copying import plain_columns, take_rows
from adjoin.parts.pagecache import ABSENT
from adjoin.parts.pagememory import PageMemory
from adjoin.parts.streambuffer import Rows
from adjoin.parts.tuplecache import CacheSizes, Groups, TupleCache
from adjoin.semistream.contract import SemiStreamJoin
from adjoin.semistream.output import Output, sizes_of
from adjoin.semistream.paged import PagedJoin, check_master
from adjoin.semistream.pairs import PairsByKey, TurnCounts, pairs_by_key
from adjoin.semistream.predicate import Distance, Equality
from adjoin.semistream.residence import find_pages
from adjoin.semistream.spec import JoinSpec, On, make_spec

_FIRST_TIME, _SECOND_TIME, _MOST_TIMES = 1, 2, 64
_PAGES_AT_A_TIME = 1 << 16
_STEADY = 1.5
"""Heat is halved after every round: a key that answers n rows in each has between n and 2 n before that."""
_FEW_KEPT, _MANY_KEPT = 0.3, 0.6
"""Shares of the rows whose turn it is to go that stay because they were wanted."""


class FrontStaged(SemiStreamJoin):
    """Answers the stream rows of hot keys from a cache of master rows; the others go to the join behind.

    How it works: a stream row whose key is cached is answered at once. All others are pushed to the join
    behind. Whenever that joins rows, it says which, while the master's rows are still in memory: those of
    keys that were seen often enough are copied into the cache. How often is enough adapts: once at first,
    so that the cache fills; more often when rows go that were still wanted, less often when what goes was
    not wanted.

    Where stream rows wait in a queue that fills the memory, the rule is an inequality: the master's rows of a
    key are cached if they take less memory than the stream rows which would otherwise wait for them. What
    does not keep that promise over a round of the queue goes again.

    A key with several master rows is cached with all of them or not at all. A range predicate passes
    through to the join behind, without a cache.

    Args:
        master: The master.
        on: Key: a name, a list of names, or `{"stream column": "master column"}`.
        how: "inner", "left", "semi" or "anti".
        memory: Budget of cache and join together.
        front: Share of the memory beyond the least that the cache may have at most.
        front_pages: Where the cache lies; memory of this operator by default.
        **options: Options of the join behind.

    Cost:
        Time O(1) for a row that is cached, else that of the join behind. Memory never more than `memory`.

    Departures:
        - Rows are packed into Arrow batches and go batch by batch, oldest first, unless they were wanted
          since; the paper overwrites the least frequent row each time.
        - Counters fade, and are kept for keys that are not cached as well.
        - Keys with several master rows are cached whole, and an update drops the keys of changed pages.
        - Cache and join share one budget: the join takes memory back when rows need it.
    """

    behind: ClassVar[type[PagedJoin]]

    def __init__(
        self,
        master: Master,
        on: On,
        how: str = "inner",
        memory: int | str = "64MB",
        *,
        columns: Sequence[str] | None = None,
        within: Distance | None = None,
        between: tuple[str, str] | None = None,
        suffix: str = "_master",
        front: float = 0.8,
        front_pages: PageMemory | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        check_master(master)
        if not isinstance(front, int | float) or not 0 <= front < 1:
            raise OptionError(f"front={front!r}: give a share from 0 to less than 1")
        self._spec = make_spec(master, on, how, columns, within, between, suffix)
        make: Callable[..., PagedJoin] = self.behind
        self._join = make(
            master,
            on,
            how,
            memory,
            columns=columns,
            within=within,
            between=between,
            suffix=suffix,
            **options,
        )
        self._pages = self._join._pages
        self._budget = self._join._budget
        spare_bytes = self._budget.total_bytes - self.behind.least_memory(
            master,
            pages=type(options.get("pages") or PageMemory()),
            shared_index=options.get("shared_index", False),
        )
        self._most_bytes = int(spare_bytes * front)
        self._front_pages = front_pages
        self._cache: TupleCache | None = None
        self._is_asking = False
        self._enough = _FIRST_TIME
        self._rows_in = 0
        self._passed_rows = 0
        self._this_turn = TurnCounts()
        self._hits = 0
        self._open_cache()
        self._pages.guest = self

    def _open_cache(self) -> None:
        """Begin with an empty cache, if the join can use one and there is room."""
        master = self._pages.master
        if not self._spec.predicate.is_equality or master.rows == 0:
            return
        names = dict.fromkeys((*self._spec.columns, *self._spec.verified))
        stored = [master.stored_schema.field(name) for name in names]
        fields = [pa.field(field.name, _storage(field.type), field.nullable) for field in stored]
        schema = pa.schema([pa.field("_adjoin_key", pa.int64(), False), *fields])
        row_bytes = max(16, master.pages * master.page_bytes // master.rows)
        sizes = CacheSizes.of(schema, self._most_bytes, row_bytes)
        if sizes is not None and self._ask(sizes.fixed_bytes):
            self._cache = TupleCache(schema, sizes, self._ask, self._front_pages)
            self._join.observe(self._observe)

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
        """Let the join behind have so many bytes of the cache."""
        if self._cache is None or self._is_asking:
            return
        freed_bytes = self._give_back(lacking_bytes)
        if freed_bytes < lacking_bytes:
            self._cache.close()
            self._cache = None
            self._join.observe(None)
            self._budget.set("front", 0)
            self._join.cede(0)

    def _give_back(self, wanted_bytes: int) -> int:
        assert self._cache is not None
        freed_bytes = self._cache.give_back(wanted_bytes)
        self._budget.add("front", -freed_bytes)
        self._join.cede(self._budget.account("front"))
        return freed_bytes

    @classmethod
    def least_memory(
        cls, master: Master, *, pages: type[PageMemory] = PageMemory, shared_index: bool = False
    ) -> int:
        """The least budget with which a join with this master works, whatever its columns."""
        return cls.behind.least_memory(master, pages=pages, shared_index=shared_index)

    def schema_of(self, stream: pa.Schema) -> pa.Schema:
        """The schema of the results for a stream with this schema."""
        return self._join.schema_of(stream)

    def metrics(self) -> dict[str, float]:
        """Those of the join behind for both; of the cache `front_hits`, `front_keys` and `front_bytes`."""
        behind = self._join.metrics()
        return {
            "front_bytes": 0,
            **behind,
            "rows_in": self._rows_in,
            "rows_out": self._rows_out,
            "cache_hits": behind["cache_hits"] + self._hits,
            "front_hits": self._hits,
            "front_keys": 0 if self._cache is None else len(self._cache),
        }

    def close(self) -> None:
        """Give files, threads and memory back."""
        self._ended = True
        self._join.close()
        if self._cache is not None:
            self._cache.close()

    def check_invariants(self) -> None:
        """Raise AssertionError if a structure contradicts itself or its account."""
        self._budget.check_invariants()
        held_bytes = 0
        if self._cache is not None:
            self._cache.check_invariants()
            held_bytes = self._cache.bytes
        assert self._budget.account("front") == held_bytes

    def offer(self, batch: pa.RecordBatch) -> bool:
        """Put rows into the input buffer of the join behind; False if there is no room. See `SSIJ.offer`."""
        if self._stream_schema is None:
            self._check_batch(batch)
        is_taken = self._join.offer(batch)
        self._rows_in += batch.num_rows if is_taken else 0
        return is_taken

    # The contract.

    def _check_master(self, master: Master) -> None:
        self._join._check_master(master)

    def _begin(self, stream: pa.Schema) -> None:
        nothing = [pa.nulls(0, field.type) for field in stream]
        self._join._check_batch(pa.RecordBatch.from_arrays(nothing, schema=stream))
        self._prepare(stream)

    def _prepare(self, stream: pa.Schema) -> None:
        if self._cache is not None:
            schema = self._spec.output_schema(stream, self._pages.master.schema)
            layout = [self._cache.layout[self._cache.schema.names.index(name)] for name in self._spec.columns]
            self._output = Output(schema, self._cache.columns, layout, self._pages.split.output_bytes)
            self._keys = _Keys(self._pages.master.codec, self._spec, self._cache)

    def _push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self._rows_in += batch.num_rows
        begin = 0
        while begin < batch.num_rows:
            piece = batch.slice(begin, self._pages.split.step_rows)
            begin += piece.num_rows
            if self._cache is not None:
                piece = yield from self._answer(piece)
            if piece.num_rows:
                yield from self._join.push(piece)
                self._pass_round(piece.num_rows)

    def _pass_round(self, rows: int) -> None:
        """Rows went on to the join behind; once they are as many as its queue holds, a round is over."""
        self._passed_rows += rows
        if self._cache is not None and self._passed_rows >= self._join.rows_of_a_round:
            self._passed_rows = 0
            self._forget_cold()

    def _idle(self, seconds: float) -> Iterator[pa.RecordBatch]:
        yield from self._join.idle(seconds)

    def _refresh(self, master: Master) -> Iterator[pa.RecordBatch]:
        before = self._pages.master.index
        yield from self._join.refresh(master)
        if self._cache is not None:
            keys = self._cache.keys()
            self._cache.drop(keys[_is_changed(keys, before, self._pages.master.index)])
        else:
            self._open_cache()
        if self._stream_schema is not None:
            self._prepare(self._stream_schema)

    def _paced(self, items: Iterable[pa.RecordBatch | Pause]) -> Iterable[pa.RecordBatch | Pause | None]:
        return self._join._paced(items)

    def _finish(self) -> Iterator[pa.RecordBatch]:
        yield from self._join.finish()
        self._ended = True

    # The cache.

    def _answer(self, batch: pa.RecordBatch) -> Generator[pa.RecordBatch, None, pa.RecordBatch]:
        """Put out the rows whose keys are cached; returns the others."""
        assert self._cache is not None
        plain = plain_columns(batch)
        low, high, valid = self._spec.predicate.bounds(plain)
        entries = self._cache.find(low)
        if valid is not None:
            entries[~valid] = EMPTY
        hit = np.flatnonzero(entries != EMPTY).astype(np.int32)
        if len(hit) == 0:
            return batch
        owner, places = self._cache.places(entries[hit])
        stream_row = hit[owner]
        if not self._keys.are_exact:
            same = self._keys.same(plain, stream_row, places)
            stream_row, places = stream_row[same], Places(places.slots[same], places.rows[same])
        rows = Rows(plain, 0.0, None, low, high, np.zeros(len(low), bool), sizes_of(plain))
        rows.matched[stream_row] = True
        self._hits += int(np.count_nonzero(rows.matched))
        if self._spec.gives_master_columns:
            yield from self._output.matched(rows, stream_row, places)
        elif self._spec.how == "semi":
            yield from self._output.alone(rows, np.flatnonzero(rows.matched))
        return batch.filter(pa.array(~rows.matched))

    def _observe(self, keys: Array, stream_row: Array, places: Places) -> None:
        """Cache the master's rows of keys that were seen often enough."""
        assert self._cache is not None
        joined = pairs_by_key(keys, stream_row)
        seen = self._cache.count(joined.keys, joined.times)
        chosen = (seen >= self._enough) & ~self._cache.knows(joined.keys)
        if self._join.waiting_row_bytes:
            chosen &= self._this_turn.count(self._join.turn, joined) >= self._times_worth(joined.rows)
        chosen[chosen] = self._are_whole(joined.keys[chosen])
        if chosen.any():
            self._cache.put(self._groups(joined, chosen, places))
            self._adapt()

    def _adapt(self) -> None:
        """Ask more of new rows when old ones that are wanted go for them, less when old ones are not."""
        assert self._cache is not None
        if not self._cache.is_full:
            self._enough = _FIRST_TIME
        elif self._cache.kept_share > _MANY_KEPT:
            self._enough = min(self._enough + 1, _MOST_TIMES)
        elif self._cache.kept_share < _FEW_KEPT:
            self._enough = max(self._enough - 1, _SECOND_TIME)

    def _times_worth(self, rows: Array) -> Array | float:
        """How many stream rows at a time make so many master rows of a key worth their memory."""
        assert self._cache is not None
        saved_bytes = self._join.waiting_row_bytes
        return self._cache.group_bytes(rows) / saved_bytes if saved_bytes else 0.0

    def _forget_cold(self) -> None:
        """After a round of the queue: what did not answer enough rows gives its memory back."""
        assert self._cache is not None
        if self._cache.forget(lambda rows: _STEADY * self._times_worth(rows)):
            self._give_back(self._cache.free_bytes)

    def _are_whole(self, keys: Array) -> Array:
        """Whether all rows of each key are on one page; keys ascend."""
        index = self._pages.index
        start, stop = locate_pages(keys, keys, index.first, index.last)
        return stop - start == 1

    def _groups(self, joined: PairsByKey, chosen: Array, places: Places) -> Groups:
        """The master's rows of the chosen keys, as many as the work of a step has room for."""
        assert self._cache is not None
        pages = self._pages
        limit_bytes = pages.split.output_bytes // 4
        at = joined.pairs[np.repeat(chosen, joined.rows)]
        rows = joined.rows[chosen]
        wanted = Places(places.slots[at], places.rows[at])
        names = self._cache.schema.names[1:]
        sizes = np.zeros(len(at), np.int64)
        for name in names:
            sizes += pages.columns.value_bytes(pages.column(name), wanted)
        ends = np.cumsum(rows)
        groups = int(np.searchsorted(np.cumsum(sizes)[ends - 1], limit_bytes, "right"))
        keys, rows = joined.keys[chosen][:groups], rows[:groups]
        wanted = wanted.slice(0, int(rows.sum()))
        arrays = [pages.columns.take(pages.column(name), wanted) for name in names]
        batch = pa.RecordBatch.from_arrays(
            [pa.array(np.repeat(keys, rows)), *arrays], schema=self._cache.schema
        )
        return Groups(keys, rows, batch, np.zeros(groups, np.uint8))


class _Keys:
    """Compares the keys of stream rows with those of cached rows, where the encoded ones do not say all."""

    def __init__(self, codec: KeyCodec, spec: JoinSpec, cache: TupleCache) -> None:
        self._codec = codec
        self._spec = spec
        self._cache = cache
        self.are_exact = codec.ordered
        self._columns = [cache.layout[cache.schema.names.index(name)] for name in spec.verified]

    def same(self, batch: pa.RecordBatch, stream_row: Array, places: Places) -> Array:
        assert isinstance(self._spec.predicate, Equality)
        keys = self._spec.predicate.keys(take_rows(batch.select(self._spec.predicate.columns), stream_row))
        return self._codec.same(keys, [self._cache.columns.take(column, places) for column in self._columns])


def _storage(type_: pa.DataType) -> pa.DataType:
    return type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_


def _is_changed(keys: Array, before: PageIndex, after: PageIndex) -> Array:
    """Whether each key lies on a page that only one of the two versions has."""
    changed = np.zeros(len(keys), bool)
    for one, other in ((before, after), (after, before)):
        for begin in range(0, len(one), _PAGES_AT_A_TIME):
            first, last, checksum = (
                array[begin : begin + _PAGES_AT_A_TIME] for array in (one.first, one.last, one.checksum)
            )
            gone = find_pages(other, first, checksum) == ABSENT
            first, last = first[gone], last[gone]
            page = np.searchsorted(first, keys, "right") - 1
            inside = np.flatnonzero(page >= 0)
            changed[inside] |= keys[inside] <= last[page[inside]]
    return changed


@lru_cache
def FrontStage(behind: type[PagedJoin]) -> type[FrontStaged]:  # noqa: N802 (makes a class)
    """The join with a front stage before it, an operator like any other; see `FrontStaged`.

    Example:
        >>> import adjoin, pyarrow as pa, tempfile
        >>> products = pa.table({"id": [1, 2, 3], "name": ["pen", "ink", "pad"]})
        >>> sales = pa.record_batch({"id": [3, 1, 9], "amount": [5, 7, 1]})
        >>> with tempfile.TemporaryDirectory() as path:
        ...     master = adjoin.Master.build(products, key="id", path=path + "/products")
        ...     with adjoin.FrontStage(adjoin.SSIJ)(master, on="id", memory="4MB") as join:
        ...         result = pa.Table.from_batches(join.run([sales]))
        >>> sorted(zip(*result.to_pydict().values()))
        [(1, 7, 'pen'), (3, 5, 'pad')]
    """
    facts = {"behind": behind, "keeps_deadlines": behind.keeps_deadlines}
    return type(f"FrontStaged{behind.__name__}", (FrontStaged,), facts)
