"""Applying changes: copy-on-write of the pages they touch, committed as the next version.

Changes and pages are walked together in the order of keys. A page whose rows still fit stays one
page; one that overflows is split to the fill level; one that has become empty disappears. The
last page touched is held back, because the next changes may belong into it too.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adjoin.errors import ConflictError
from adjoin.master.build import write_index
from adjoin.master.changes import LARGEST_CHUNK_BYTES, ChangeSet, Resolved, matches
from adjoin.master.datafile import DataFile, PageWriter, read_pages
from adjoin.master.filter import KeyFilter, KeySpool
from adjoin.master.index import PageIndex
from adjoin.master.keys import encoded_values
from adjoin.master.manifest import TXNS_KEPT, Manifest
from adjoin.master.page import Cuts, PageCutter, seal
from adjoin.master.versions import Home
from adjoin.parts.arena import BLOCK_BYTES


@dataclass(frozen=True)
class Base:
    """The version that is changed."""

    manifest: Manifest
    index: PageIndex
    filter: KeyFilter | None


@dataclass(frozen=True)
class _Held:
    """Rows of the last page touched, not yet written."""

    page: int
    rows: pa.RecordBatch


def apply(home: Home, base: Base, changes: Any, txn: str | None, memory_bytes: int) -> bool:
    """Commit the version after `base`; False if there is nothing to commit. The caller locks writers."""
    with ExitStack() as stack:
        change_set = ChangeSet(base.manifest, home, memory_bytes)
        stack.callback(change_set.close)
        change_set.read(changes)
        rewriter = Rewriter(home, base, memory_bytes)
        stack.callback(rewriter.close)
        for part in change_set.resolved():
            rewriter.add(part)
        manifest = rewriter.finish()
        if manifest is base.manifest and txn is None:
            return False
        txns = (*base.manifest.txns, txn) if txn is not None else base.manifest.txns
        home.commit(manifest.next(txns=txns[-TXNS_KEPT:]))
    return True


def refuse_stale(home: Home, base_version: int) -> None:
    newest = home.newest()
    if newest != base_version:
        raise ConflictError(
            f"this is version {base_version} of {home.path} and version {newest} has been committed since; "
            "open the master again and apply the changes to it"
        )


class Rewriter:
    """Merges resolved changes into the pages that they touch."""

    def __init__(self, home: Home, base: Base, memory_bytes: int) -> None:
        self._home = home
        self._manifest = base.manifest
        self._index = base.index
        self._schema = base.manifest.stored_schema
        self._slice_bytes = min(memory_bytes // 16, LARGEST_CHUNK_BYTES)
        self._cutter = PageCutter(self._schema, base.manifest.page_bytes, base.manifest.fill)
        self._writer = PageWriter(home.data_dir, self._schema)
        self._filter = base.filter.copy() if base.filter else None
        self._rewritten = np.zeros(len(base.index), np.bool_)
        self._held: _Held | None = None
        self._new: list[PageIndex] = []
        self._new_places: list[NDArray[np.int64]] = []
        self._created: list[str] = []

    def add(self, part: Resolved) -> None:
        """Take the next changes, with keys greater than all before."""
        owner = np.maximum(np.searchsorted(self._index.first, part.added_keys, "right") - 1, 0)
        touched = np.union1d(self._pages_with(part.cleared_keys), owner)
        if self._filter is not None:
            self._filter.add(part.added_keys)
        for pages in self._slices(touched):
            chosen = slice(*np.searchsorted(owner, [pages[0], pages[-1] + 1]).tolist())
            added = part.added.slice(chosen.start, chosen.stop - chosen.start)
            self._rewrite(pages, part, added, owner[chosen])
        self._thin_out(part.last_key)

    def finish(self) -> Manifest:
        """Write what is left; return the manifest with the new pages, or the base's if all is as before."""
        self._flush_held()
        if not self._new and not self._rewritten.any():
            return self._manifest
        data_files = [*self._manifest.files, *self._writer.finish()]
        index, data_files = self._merge_index(data_files)
        key_filter = self._filter
        if key_filter is not None and key_filter.is_crowded:
            key_filter = self._rebuild_filter(index, data_files)
        index_file, filter_file = write_index(self._home, index, key_filter, self._created)
        return self._manifest.with_pages(index, tuple(data_files), index_file, filter_file)

    def close(self) -> None:
        self._writer.close()
        self._home.discard_unless_committed(self._manifest.version + 1, [*self._writer.paths, *self._created])

    def _pages_with(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Pages that may hold rows with these keys."""
        low = np.searchsorted(self._index.last, keys, "left")
        counts = np.maximum(np.searchsorted(self._index.first, keys, "right") - low, 0)
        ends = np.cumsum(counts)
        within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)
        return np.unique(np.repeat(low, counts) + within)

    def _slices(self, pages: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """The pages in portions that fit the memory."""
        if len(pages) == 0:
            return
        blocks = self._index.blocks[pages] if len(self._index) else np.ones(1, np.int64)
        portion = (np.cumsum(blocks, dtype=np.int64) * BLOCK_BYTES) // max(BLOCK_BYTES, self._slice_bytes)
        yield from np.split(pages, np.flatnonzero(np.diff(portion)) + 1)

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
        gone = matches(self._manifest.codec, keys, rows, cleared, part.cleared_keys[chosen])
        changed = np.union1d(np.unique(page_of[gone]), owner)
        if self._held is not None and self._held.page == pages[0]:
            changed = np.union1d(changed, pages[:1])
            self._held = None
        if len(changed) == 0:
            return
        self._flush_held()
        self._rewritten[changed[changed < len(self._index)]] = True
        stays = np.flatnonzero(~gone & np.isin(page_of, changed))
        self._emit(int(changed[-1]), *_merge(self._manifest.key_column, rows, page_of, stays, added, owner))

    def _load(self, pages: NDArray[np.int64]) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        """The rows of the pages as they are now, and the page of each."""
        held = self._held if self._held is not None and self._held.page == pages[0] else None
        stored = pages[1:] if held else pages
        stored = stored[stored < len(self._index)]
        table = read_pages(self._schema, self._manifest.files, self._index, stored)
        batches = [held.rows] if held else []
        batches += table.to_batches()
        rows = pa.concat_batches(batches) if batches else _no_rows(self._schema)
        page_of = np.repeat(stored, self._index.rows[stored])
        if held:
            page_of = np.concatenate([np.full(held.rows.num_rows, held.page), page_of])
        return rows, page_of

    def _emit(self, last_page: int, rows: pa.RecordBatch, page_of: NDArray[np.int64]) -> None:
        """Write all pages but the last, which is held back even if it has become empty."""
        last = int(np.searchsorted(page_of, last_page, "left"))
        self._write(rows.slice(0, last), page_of[:last])
        self._held = _Held(last_page, rows.slice(last))

    def _thin_out(self, last_key: int) -> None:
        """Write what the held page has outgrown and no later change can reach."""
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

    def _merge_index(self, data_files: list[DataFile]) -> tuple[PageIndex, list[DataFile]]:
        """Old entries that stay and new ones in the order of keys; files without pages are dropped."""
        fresh = PageIndex.concat(self._new)
        fresh.file[:] += len(self._manifest.files)
        kept = np.flatnonzero(~self._rewritten)
        both = PageIndex.concat([self._index.take(kept), fresh])
        order = np.argsort(np.concatenate([kept, *self._new_places]), kind="stable")
        index = both.take(order)
        used, renumbered = np.unique(index.file, return_inverse=True)
        index.file[:] = renumbered
        return index, [data_files[ordinal] for ordinal in used.tolist()]

    def _rebuild_filter(self, index: PageIndex, data_files: list[DataFile]) -> KeyFilter:
        spool = KeySpool(self._home.temporary(".keys"))
        try:
            for keys in stored_keys(self._manifest, data_files, index, self._slice_bytes):
                spool.add(keys)
            return spool.to_filter(self._manifest.filter_bits)
        finally:
            spool.close()


def stored_keys(
    manifest: Manifest, data_files: list[DataFile], index: PageIndex, chunk_bytes: int
) -> Iterator[NDArray[np.int64]]:
    """The encoded keys of all pages in order."""
    step = max(1, chunk_bytes // manifest.page_bytes)
    for start in range(0, len(index), step):
        wanted = np.arange(start, min(start + step, len(index)))
        table = read_pages(manifest.stored_schema, data_files, index, wanted)
        yield encoded_values(table.column(manifest.key_column))


def _merge(
    key_column: str,
    rows: pa.RecordBatch,
    page_of: NDArray[np.int64],
    stays: NDArray[np.int64],
    added: pa.RecordBatch,
    owner: NDArray[np.int64],
) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
    """Old rows that stay and new rows, in the order of pages and then of keys."""
    if len(stays) < rows.num_rows:
        rows = rows.take(pa.array(stays))
    both = pa.concat_batches([rows, pa.record_batch(added.columns, schema=rows.schema)])
    pages = np.concatenate([page_of[stays], owner])
    order = np.lexsort((encoded_values(both.column(key_column)), pages))
    return both.take(pa.array(order)), pages[order]


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.record_batch([pa.array([], field.type) for field in schema], schema=schema)
