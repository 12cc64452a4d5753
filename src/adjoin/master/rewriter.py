"""Merging changes into pages.

Changes and pages are traversed together in key order. A page whose rows still fit stays one
page, one that overflows is split into pages of the fill level, and one that has become empty is dropped. The
last page touched is held back, because the next changes may belong to it too.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adjoin.arrow.copying import no_rows
from adjoin.keys.codec import encoded_values
from adjoin.master.changes import LARGEST_CHUNK_BYTES, Resolved, matches
from adjoin.master.data_file import DataFile, PageWriter, read_pages
from adjoin.master.index import PageIndex
from adjoin.master.manifest import Manifest
from adjoin.master.page import Cuts, PageCutter, seal
from adjoin.master.spool import KeySpool, SpooledKeys, SpooledRecords
from adjoin.master.versions import Home
from adjoin.memory.arena import BLOCK_BYTES


@dataclass(frozen=True)
class Rewritten:
    """New pages for a range of keys, which belong to no version yet.

    Attributes:
        pages: The pages of the base that are replaced.
        index: The new pages; files are numbered from 0.
        places: For each new page, the page of the base that it replaces or follows.
        files: The data files of the new pages.
        keys: The keys that were added, if there is a filter.
        records: The records of changes with a sequence; see `adjoin.master.latest`.
    """

    pages: NDArray[np.int64]
    index: PageIndex
    places: NDArray[np.int64]
    files: list[DataFile]
    keys: SpooledKeys | None
    records: SpooledRecords | None = None


@dataclass(frozen=True)
class Sweep:
    """Rows to remove although no change names them.

    Attributes:
        pages: Pages to search for such rows, ascending, in addition to those that changes touch.
        goes: Says which of the given rows to remove.
    """

    pages: NDArray[np.int64]
    goes: Callable[[pa.RecordBatch], NDArray[np.bool_]]


@dataclass(frozen=True)
class _Held:
    """The rows of the last page touched, which are not written yet."""

    page: int
    rows: pa.RecordBatch


class Rewriter:
    """Merges resolved changes into the pages that they touch; see `rewrite`."""

    def __init__(
        self,
        home: Home,
        manifest: Manifest,
        index: PageIndex,
        memory_bytes: int,
        first_page: int = 0,
        marker: str = "",
        sweep: Sweep | None = None,
    ) -> None:
        self._manifest = manifest
        self._sweep = sweep
        self._unswept = np.empty(0, np.int64) if sweep is None else sweep.pages
        self._index = index
        self._first_page = first_page
        self._schema = manifest.stored_schema
        self._slice_bytes = slice_bytes(memory_bytes)
        self._cutter = PageCutter(self._schema, manifest.page_bytes, manifest.fill)
        self._writer = PageWriter(home.data_dir, self._schema, marker=marker)
        self._spool = KeySpool(home.temporary(".keys", marker)) if manifest.filter else None
        self._rewritten = np.zeros(len(index), np.bool_)
        self._held: _Held | None = None
        self._new: list[PageIndex] = []
        self._new_places: list[NDArray[np.int64]] = []
        self._finished = False

    def add(self, part: Resolved) -> None:
        """Merge the next changes, whose keys are greater than all previous ones."""
        owner = np.maximum(np.searchsorted(self._index.first, part.added_keys, "right") - 1, 0)
        touched = self._with_swept(np.union1d(pages_with(self._index, part.cleared_keys), owner))
        if self._spool is not None:
            self._spool.add(part.added_keys)
        for pages in page_slices(self._index, touched, self._slice_bytes):
            chosen = slice(*np.searchsorted(owner, [pages[0], pages[-1] + 1]).tolist())
            added = part.added.slice(chosen.start, chosen.stop - chosen.start)
            self._rewrite(pages, part, added, owner[chosen])
        self._thin_out(part.last_key)

    def finish(self) -> Rewritten:
        """Write the remaining pages, and return all new ones."""
        for pages in page_slices(self._index, self._unswept, self._slice_bytes):
            self._rewrite(pages, _no_changes(self._schema), no_rows(self._schema), np.empty(0, np.int64))
        self._flush_held()
        data_files = self._writer.finish()
        keys = self._spool.finish() if self._spool else None
        self._finished = True
        return Rewritten(
            pages=np.flatnonzero(self._rewritten),
            index=PageIndex.concat(self._new),
            places=np.concatenate([np.empty(0, np.int64), *self._new_places]),
            files=data_files,
            keys=keys,
        )

    def close(self) -> None:
        """Remove everything that was written, unless it is finished."""
        if not self._finished:
            self._writer.discard()
        if self._spool:
            self._spool.close()

    def _with_swept(self, pages: NDArray[np.int64]) -> NDArray[np.int64]:
        """These pages, with the pages to be swept that precede the last of them."""
        count = int(np.searchsorted(self._unswept, pages[-1], "right")) if len(pages) else 0
        swept, self._unswept = self._unswept[:count], self._unswept[count:]
        return np.union1d(pages, swept) if count else pages

    def _own(self, pages: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of the pages that exist and may be changed by this rewriter."""
        return pages[(pages >= self._first_page) & (pages < len(self._index))]

    def _rewrite(
        self, pages: NDArray[np.int64], part: Resolved, added: pa.RecordBatch, owner: NDArray[np.int64]
    ) -> None:
        rows, page_of = self._load(pages)
        keys = encoded_values(rows.column(self._manifest.key_column))
        chosen = slice(0, 0)
        if len(keys):
            low = int(np.searchsorted(part.cleared_keys, keys[0], "left"))
            chosen = slice(low, int(np.searchsorted(part.cleared_keys, keys[-1], "right")))
        cleared = part.cleared.slice(chosen.start, chosen.stop - chosen.start)
        gone = matches(self._manifest.codec, keys, rows, cleared, part.cleared_keys[chosen]) >= 0
        if self._sweep is not None:
            gone |= self._sweep.goes(rows)
        changed = np.union1d(np.unique(page_of[gone]), owner)
        if self._held is not None and self._held.page == pages[0]:
            changed = np.union1d(changed, pages[:1])
            self._held = None
        if len(changed) == 0:
            return
        self._flush_held()
        self._rewritten[self._own(changed)] = True
        stays = np.flatnonzero(~gone & np.isin(page_of, changed))
        self._emit(int(changed[-1]), *_merge(self._manifest.key_column, rows, page_of, stays, added, owner))

    def _load(self, pages: NDArray[np.int64]) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        """The current rows of the pages, and the page of each row."""
        held = self._held if self._held is not None and self._held.page == pages[0] else None
        stored = pages[1:] if held else pages
        stored = self._own(stored)
        table = read_pages(self._manifest.stored, self._manifest.files, self._index, stored)
        batches = [held.rows] if held else []
        batches += table.to_batches()
        rows = pa.concat_batches(batches) if batches else no_rows(self._schema)
        page_of = np.repeat(stored, self._index.rows[stored])
        if held:
            page_of = np.concatenate([np.full(held.rows.num_rows, held.page), page_of])
        return rows, page_of

    def _emit(self, last_page: int, rows: pa.RecordBatch, page_of: NDArray[np.int64]) -> None:
        """Write all pages except the last, which is held back even if it has become empty."""
        last = int(np.searchsorted(page_of, last_page, "left"))
        self._write(rows.slice(0, last), page_of[:last])
        self._held = _Held(last_page, rows.slice(last))

    def _thin_out(self, last_key: int) -> None:
        """Write those pages split off the held page that no later change can reach."""
        if self._held is None or self._held.rows.num_rows == 0:
            return
        rows = self._held.rows
        place = np.full(rows.num_rows, self._held.page)
        cuts = self._cutter.cut_groups(rows, place)
        keys = encoded_values(rows.column(self._manifest.key_column))
        final = int(np.searchsorted(keys, last_key, "right"))
        ready = cuts.first(int(np.searchsorted(cuts.bounds[1:-1], final, "right")))
        self._write_pages(rows, place, ready)
        self._held = _Held(self._held.page, rows.slice(ready.rows))

    def _flush_held(self) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            self._write(held.rows, np.full(held.rows.num_rows, held.page))

    def _write(self, rows: pa.RecordBatch, page_of: NDArray[np.int64]) -> None:
        if rows.num_rows:
            self._write_pages(rows, page_of, self._cutter.cut_groups(rows, page_of))

    def _write_pages(self, rows: pa.RecordBatch, page_of: NDArray[np.int64], cuts: Cuts) -> None:
        if len(cuts):
            keys = encoded_values(rows.column(self._manifest.key_column))
            self._new.append(self._writer.write(keys, cuts.bounds, seal(rows, cuts)))
            self._new_places.append(page_of[cuts.bounds[:-1]])


def pages_with(index: PageIndex, keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Pages that may hold rows with these keys."""
    low = np.searchsorted(index.last, keys, "left")
    counts = np.maximum(np.searchsorted(index.first, keys, "right") - low, 0)
    ends = np.cumsum(counts)
    within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)
    return np.unique(np.repeat(low, counts) + within)


def page_slices(index: PageIndex, pages: NDArray[np.int64], slice_bytes: int) -> Iterator[NDArray[np.int64]]:
    """The pages in slices of about `slice_bytes`."""
    if len(pages) == 0:
        return
    blocks = index.blocks[pages] if len(index) else np.ones(1, np.int64)
    number = (np.cumsum(blocks, dtype=np.int64) * BLOCK_BYTES) // max(BLOCK_BYTES, slice_bytes)
    yield from np.split(pages, np.flatnonzero(np.diff(number)) + 1)


def slice_bytes(memory_bytes: int) -> int:
    """How many bytes of pages to load at once."""
    return min(memory_bytes // 16, LARGEST_CHUNK_BYTES)


def _merge(
    key_column: str,
    rows: pa.RecordBatch,
    page_of: NDArray[np.int64],
    stays: NDArray[np.int64],
    added: pa.RecordBatch,
    owner: NDArray[np.int64],
) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
    """Merge old rows that stay with new rows, ordered by page and then by key."""
    if len(stays) < rows.num_rows:
        rows = rows.take(pa.array(stays))
    both = pa.concat_batches([rows, pa.record_batch(added.columns, schema=rows.schema)])
    pages = np.concatenate([page_of[stays], owner])
    order = np.lexsort((encoded_values(both.column(key_column)), pages))
    return both.take(pa.array(order)), pages[order]


def _no_changes(schema: pa.Schema) -> Resolved:
    no_keys = np.empty(0, np.int64)
    return Resolved(no_rows(schema), no_keys, no_rows(schema), no_keys, 0)
