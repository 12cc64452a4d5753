"""The front stage: a cache of master rows in front of any other join."""

from collections.abc import Callable, Generator, Iterable, Iterator
from functools import cache
from inspect import Signature, signature
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from adjoin import arguments
from adjoin.arrow.copying import plain_columns, take_rows
from adjoin.arrow.encodings import Orders, can_be_numbered, declared_values
from adjoin.arrow.row_sizes import sizes_of
from adjoin.errors import OptionError
from adjoin.kernels.key_table import EMPTY
from adjoin.kernels.types import Array
from adjoin.master.master import Master
from adjoin.memory.page_memory import PageMemory
from adjoin.operators.clock import Pause
from adjoin.operators.on import On
from adjoin.operators.portions import portions
from adjoin.semistream.base.answers import KeyCheck, Output
from adjoin.semistream.base.buffers import Rows
from adjoin.semistream.base.contract import SemiStreamOperator
from adjoin.semistream.base.join import SemiStreamJoin, require_master
from adjoin.semistream.frontstage.cache import FrontCache
from adjoin.semistream.frontstage.tuple_cache import CachedPlaces, TupleCache


class FrontStaged(SemiStreamOperator):
    """Answers stream rows with hot keys from a cache of master rows; the others go to the join behind.

    How it works: a stream row whose key is cached is answered at once. All others are pushed to the join
    behind. Whenever that joins rows, it reports them while the master rows are still in memory, and those of
    keys that were seen often enough are copied into the cache. How often is enough adapts: once at first, so
    that the cache fills; then as often as nearly all keys that are cached. When old and new keys compete,
    those that were seen most stay.

    Where stream rows wait in a queue that fills the memory, the rule is an inequality: the master rows of a
    key are cached if they take less memory than the stream rows that would otherwise wait for them. Keys that
    do not live up to this over a round of the queue are dropped again.

    A key with several master rows is cached with all of them or not at all. A range join passes through to
    the join behind, without a cache.

    Args:
        master: The master.
        on: The key.
        how: "inner", "left", "semi" or "anti".
        memory: Budget of cache and join together.
        front: The most that the cache may have, as a share of the memory beyond the least.
        **options: The other options of the join behind, which are part of the signature of every class that
            `FrontStage` makes. With `pages`, the cache lies in a part of the same memory, and is left for the
            next operator like the pages.

    Cost:
        Time O(1) for a row that is cached, else that of the join behind. Memory never exceeds `memory`.

    Departures:
        - Rows are packed into Arrow batches, and new ones compete with those of one batch at a time; the
          paper always overwrites the least frequent row of all.
        - Counters fade, and are kept for keys that are not cached as well, several keys sharing one.
        - Keys with several master rows are cached whole, and an update drops the keys of changed pages.
        - Cache and join share one budget: the join takes memory back when rows need it.
    """

    behind: ClassVar[type[SemiStreamJoin]]

    def __init__(
        self,
        master: Master,
        on: On,
        how: str = "inner",
        memory: int | str = "64MB",
        *,
        front: float = 0.8,
        **options: Any,
    ) -> None:
        super().__init__()
        require_master(master)
        front = arguments.share("front", front)
        if front == 1:
            raise OptionError("front=1 leaves nothing to the join behind; give a share less than 1")
        given = arguments.kind("pages", options.get("pages"), PageMemory)
        pages: PageMemory = PageMemory() if given is None else given
        part = pages.part("front")
        make: Callable[..., SemiStreamJoin] = self.behind
        self._join = make(master, on, how, memory, **{**options, "pages": pages})
        self._spec = self._join.parts.spec
        self._pages = self._join.parts.pages
        least_bytes = self.behind.least_memory(
            master, pages=type(pages), shared_index=options.get("shared_index", False)
        )
        try:
            self._cache = FrontCache(self._join.parts, self._join.room, least_bytes, front, part)
        except BaseException:
            self._join.close()
            raise
        self._rows_in = 0
        self._hits = 0

    @classmethod
    def least_memory(
        cls, master: Master, *, pages: type[PageMemory] = PageMemory, shared_index: bool = False
    ) -> int:
        """The least budget with which a join with this master works, whatever its columns."""
        return cls.behind.least_memory(master, pages=pages, shared_index=shared_index)

    def schema_of(self, stream: pa.Schema) -> pa.Schema:
        """The schema of the results for a stream with this schema."""
        return self._join.schema_of(stream)

    def metrics(self) -> dict[str, Any]:
        """The metrics of the join behind, for both; also `front_hits`, `front_keys` and `front_bytes`."""
        behind = self._join.metrics()
        return {
            "front_bytes": 0,
            **behind,
            "rows_in": self._rows_in,
            "rows_out": self._rows_out,
            "cache_hits": behind["cache_hits"] + self._hits,
            "front_hits": self._hits,
            "front_keys": len(self._cache),
        }

    def close(self) -> None:
        """Free files, threads and memory; see `SemiStreamJoin.close` for what is left in a `PageFile`."""
        super().close()

    def _close(self) -> None:
        self._cache.close(is_sound=not self._failed and not self._busy)
        if self._failed:
            self._join.abandon()
        self._join.close()

    def check_invariants(self) -> None:
        """Raise AssertionError if a structure contradicts itself or its account."""
        self._join.check_invariants()
        self._cache.check_invariants()

    def check_rows(self, batch: pa.RecordBatch) -> None:
        """Raise a BudgetError if a row does not fit in memory."""
        self._join.check_rows(batch)

    def check_master(self, master: Master) -> None:
        """Raise an error unless `refresh` can continue with this master."""
        self._join.check_master(master)

    def offer(self, batch: pa.RecordBatch) -> bool:
        """Put rows into the input buffer of the join behind; False if there is no room. See `SSIJ.offer`.

        They bypass the cache.
        """
        self._check_open()
        self._check_batch(batch)
        is_taken = self._join.offer(batch)
        self._rows_in += batch.num_rows if is_taken else 0
        return is_taken

    def paced(self, items: Iterable[pa.RecordBatch | Pause]) -> Iterable[pa.RecordBatch | Pause | None]:
        """The items, with a None wherever rows must be answered before the next item arrives."""
        return self._join.paced(items)

    # For an operator in front.

    def reserve(self, account: str, wanted_bytes: int) -> bool:
        """Set memory of the budget aside, evicting pages for it; False if there is no room."""
        return self._join.reserve(account, wanted_bytes)

    @property
    def work_bytes(self) -> int:
        """What one step may use for sorting, probing and building results."""
        return self._join.work_bytes

    # The contract.

    def _check_mapped(self) -> None:
        self._pages.check_memory()

    def _check_batch(self, batch: pa.RecordBatch) -> None:
        super()._check_batch(batch)
        self._spec.orders.note_columns(batch)

    def _begin(self, stream: pa.Schema) -> None:
        self._join.expect(stream)
        self._prepare(stream)

    def _prepare(self, stream: pa.Schema) -> None:
        self._can_split = all(can_be_numbered(field.type) for field in stream)
        rows = self._cache.rows
        if rows is not None:
            schema = self.schema_of(stream)
            layout, keys = rows.layout_of(self._spec.columns), rows.layout_of(self._spec.verified)
            self._output = Output(
                schema, rows.columns, layout, self._pages.split.output_bytes, self._spec.orders
            )
            self._check = KeyCheck(self._spec, self._pages.master.codec, rows.columns, keys)

    def _push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self._rows_in += batch.num_rows
        begin = 0
        while begin < batch.num_rows:
            piece = batch.slice(begin, self._pages.split.step_rows)
            begin += piece.num_rows
            if self._cache.rows is not None and self._can_split:
                piece = yield from self._answer(self._cache.rows, piece)
            if piece.num_rows:
                yield from self._join.push(piece)
                self._cache.pass_on(piece.num_rows)

    def _idle(self, seconds: float) -> Iterator[pa.RecordBatch]:
        yield from self._join.idle(seconds)

    def _refresh(self, master: Master) -> Iterator[pa.RecordBatch]:
        before = self._pages.master.checked_index
        yield from self._join.refresh(master)
        self._cache.refresh(before)
        if self._stream_schema is not None:
            self._prepare(self._stream_schema)

    def _finish(self) -> Iterator[pa.RecordBatch]:
        yield from self._join.finish()
        self._ended = True

    def _answer(
        self, cached: TupleCache, batch: pa.RecordBatch
    ) -> Generator[pa.RecordBatch, None, pa.RecordBatch]:
        """Emit the rows whose keys are cached; returns the others."""
        plain = plain_columns(batch)
        low, high, valid = self._spec.predicate.bounds(plain)
        entries = cached.find(low)
        if valid is not None:
            entries[~valid] = EMPTY
        hit = np.flatnonzero(entries != EMPTY).astype(np.int32)
        if len(hit) == 0:
            return batch
        rows = Rows(plain, 0.0, None, low, high, np.zeros(len(low), bool), sizes_of(plain))
        with self._cache.held():
            found = cached.places(entries[hit], low[hit])
            for begin, end in portions(found.rows, self._pages.split.step_rows):
                yield from self._join_cached(cached, rows, hit[begin:end], found.part(begin, end))
        self._hits += int(np.count_nonzero(rows.matched))
        if self._spec.how == "semi":
            yield from self._output.alone(rows, np.flatnonzero(rows.matched))
        unmatched = take_rows(plain, np.flatnonzero(~rows.matched))
        return _declared(unmatched, batch.schema, self._spec.orders)

    def _join_cached(
        self, cached: TupleCache, rows: Rows, hit: Array, found: CachedPlaces
    ) -> Iterator[pa.RecordBatch]:
        """Join rows with the cached rows of their keys; notes which have a match."""
        owner, places = found.all()
        stream_row = hit[owner]
        if not self._check.is_exact:
            stream_row, places = self._check.equal(rows.batch, stream_row, places)
        rows.matched[stream_row] = True
        if not self._spec.gives_master_columns or len(stream_row) == 0:
            cached.vouch(found)
            return
        for batch in self._output.matched(rows, stream_row, places):
            cached.vouch(found)
            yield batch


def _declared(plain: pa.RecordBatch, schema: pa.Schema, orders: Orders) -> pa.RecordBatch:
    """The batch in the stream's own types again."""
    columns = [
        declared_values(column, field.type, orders, (field.name,))
        for column, field in zip(plain.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@cache
def FrontStage(behind: type[SemiStreamJoin]) -> type[FrontStaged]:  # noqa: N802 (makes a class)
    """The join with a front stage before it, an operator like any other; see `FrontStaged`.

    Its options are those of the join, and `front`.

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
    name = f"FrontStaged{behind.__name__}"
    options = signature(behind)
    facts = {
        "__module__": __name__,
        "__doc__": _document(behind, options),
        "__signature__": options.replace(
            parameters=[*options.parameters.values(), signature(FrontStaged).parameters["front"]]
        ),
        "behind": behind,
        "keeps_deadlines": behind.keeps_deadlines,
    }
    return type(name, (FrontStaged,), facts)


def _document(behind: type[SemiStreamJoin], options: Signature) -> str:
    """The docstring of a class that `FrontStage` makes."""
    return f"""`{behind.__name__}` behind a cache of the master rows that the stream wants most.

    Args:
        {", ".join(options.parameters)}:
            See `{behind.__name__}`.
        front: The most that the cache may have, as a share of the memory beyond the least.

    See `FrontStaged` for how it works.
    """
