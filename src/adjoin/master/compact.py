"""Compacting a master: rewriting thin pages and those of older layouts, then emptying sparse files.

Each step commits a version with the same rows, hence with the same revision. The second step copies pages
unchanged, so it can be applied on top of whatever other writers commit in the meantime. The first step
creates new pages: if another writer is faster, they are dropped, and the old pages are left to the next
call.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adjoin.arrow.row_sizes import row_bytes
from adjoin.errors import ConflictError
from adjoin.keys.codec import encoded_values
from adjoin.master.apply import Base, merge_index
from adjoin.master.build import write_index
from adjoin.master.data_file import DataFile, PageWriter, read_pages
from adjoin.master.index import PageIndex
from adjoin.master.manifest import Manifest, now
from adjoin.master.page import PageCutter, seal
from adjoin.master.page_moves import Moved, MoverFor, moved_onto, pages_of, worth_emptying
from adjoin.master.rewriter import Rewritten, slice_bytes
from adjoin.master.verify import MappedIndex
from adjoin.master.versions import Home
from adjoin.memory.arena import BLOCK_BYTES

_ATTEMPTS = 100
_SAMPLED_PAGES = 64
_THIN = 0.5


def compact(home: Home, memory_bytes: int, mover_for: MoverFor) -> None:
    """Commit the compacted versions, if there is anything to gain; the caller holds the lock of writers."""
    _rewrite_pages(home, memory_bytes)
    _move_pages(home, mover_for)


@dataclass(frozen=True)
class _Relation:
    """A relation of a version, with its index."""

    manifest: Manifest
    index: PageIndex

    @classmethod
    def all_of(cls, home: Home, manifest: Manifest) -> "list[_Relation]":
        return [cls(relation, MappedIndex(home, relation).index) for relation in manifest.relations()]


def _move_pages(home: Home, mover_for: MoverFor) -> None:
    created: list[str] = []
    with ExitStack() as pins:
        pinned = home.pin()
        pins.enter_context(pinned.lock)
        try:
            moved: list[tuple[_Relation, Moved]] = []
            for relation in _Relation.all_of(home, pinned.manifest):
                emptied = worth_emptying(relation.manifest.files, relation.index)
                pages = pages_of(relation.index, emptied)
                mover = mover_for(int(relation.index.blocks[pages].sum(dtype=np.int64)) * BLOCK_BYTES)
                moved.append((relation, mover(home, relation.manifest, relation.index, pages)))
                created += [file.path for file in moved[-1][1].files]
            if any(len(pages.pages) for _, pages in moved):
                _commit_moved(home, moved, created)
        finally:
            home.discard_unless_committed(pinned.manifest.version + 1, created)


def _commit_moved(home: Home, moved: Sequence[tuple[_Relation, Moved]], created: list[str]) -> None:
    for _ in range(_ATTEMPTS):
        pinned = home.pin()
        with pinned.lock:
            placed = [
                moved_onto(newer.manifest, newer.index, relation.manifest, relation.index, pages)
                for newer, (relation, pages) in zip(
                    _Relation.all_of(home, pinned.manifest), moved, strict=False
                )
            ]
            if not any(placed):
                return  # other writers have replaced all of these pages
            try:
                home.commit(_with_places(home, pinned.manifest, placed, created))
            except ConflictError:
                continue
            return
    raise ConflictError(
        f"other writers of {home.path} were faster than compact in all of {_ATTEMPTS} attempts; run it when "
        "there are fewer writers"
    )


def _with_places(
    home: Home,
    manifest: Manifest,
    placed: Sequence[tuple[PageIndex, list[DataFile]] | None],
    created: list[str],
) -> Manifest:
    """The version after this one, with these pages for each relation that has new ones."""
    following = manifest
    for depth, place in enumerate(placed):
        if place is not None:
            following = _with_relation(home, following, depth, place, created)
    return replace(following, version=manifest.version + 1, created=now())


def _with_relation(
    home: Home, manifest: Manifest, depth: int, place: tuple[PageIndex, list[DataFile]], created: list[str]
) -> Manifest:
    if depth > 0:
        assert manifest.latest is not None
        relation = _with_relation(home, manifest.latest.relation, depth - 1, place, created)
        return replace(manifest, latest=replace(manifest.latest, relation=relation))
    index, data_files = place
    index_file, _ = write_index(home, index, None, created)
    return manifest.with_pages(index, tuple(data_files), index_file, manifest.filter)


def _rewrite_pages(home: Home, memory_bytes: int) -> None:
    """Commit a version in which mostly empty neighbors share pages, and all pages have the newest layout.

    Does nothing if another writer commits in the meantime.
    """
    created: list[str] = []
    pinned = home.pin()
    with pinned.lock:
        try:
            placed = [
                _merged(home, relation, memory_bytes, created)
                for relation in _Relation.all_of(home, pinned.manifest)
            ]
            if any(placed):
                home.commit(_with_places(home, pinned.manifest, placed, created))
        except ConflictError:
            return
        finally:
            home.discard_unless_committed(pinned.manifest.version + 1, created)


def _merged(
    home: Home, relation: _Relation, memory_bytes: int, created: list[str]
) -> tuple[PageIndex, list[DataFile]] | None:
    merger = _Merger(home, relation, memory_bytes)
    try:
        for run in merger.runs():
            merger.merge(run)
        part = merger.finish()
    finally:
        created += merger.paths
        merger.close()
    if len(part.pages) == 0:
        return None
    return merge_index(Base(relation.manifest, relation.index, None), [part])


class _Merger:
    """Merges runs of thin pages, and rewrites pages of older layouts in the newest.

    The index does not say how full a page is. So the length of rows is estimated from a sample of pages; a
    run whose pages turn out to be fuller than estimated stays as it is.
    """

    def __init__(self, home: Home, relation: _Relation, memory_bytes: int) -> None:
        manifest = relation.manifest
        self._manifest = manifest
        self._index = relation.index
        layouts = np.array([file.layout for file in manifest.files], np.int64)
        self._is_old = layouts[relation.index.file] != manifest.newest_layout
        self._run_bytes = max(2 * manifest.page_bytes, slice_bytes(memory_bytes))
        self._cutter = PageCutter(manifest.stored_schema, manifest.page_bytes, manifest.fill)
        self._writer = PageWriter(home.data_dir, manifest.stored_schema)
        self._gone: list[NDArray[np.int64]] = []
        self._new: list[PageIndex] = []
        self._places: list[NDArray[np.int64]] = []

    @property
    def paths(self) -> list[str]:
        return self._writer.paths

    def close(self) -> None:
        self._writer.close()

    def runs(self) -> Iterator[NDArray[np.int64]]:
        """Runs of neighbors that seem less than half full or have an older layout, cut to fit the memory."""
        if len(self._index) == 0:
            return
        used = self._index.rows * self._bytes_per_row()
        chosen = np.flatnonzero((used < _THIN * self._cutter.fill_bytes) | self._is_old)
        for run in np.split(chosen, np.flatnonzero(np.diff(chosen) > 1) + 1):
            ends = np.cumsum(self._index.blocks[run], dtype=np.int64) * BLOCK_BYTES
            yield from np.split(run, np.flatnonzero(np.diff(ends // self._run_bytes)) + 1)

    def _bytes_per_row(self) -> float:
        step = -(-len(self._index) // _SAMPLED_PAGES)
        rows = self._read(np.arange(0, len(self._index), step))
        return float(row_bytes(rows).mean())

    def merge(self, run: NDArray[np.int64]) -> None:
        """Write the rows of the run as full pages of the newest layout, unless that gains nothing."""
        if len(run) < 2 and not self._is_old[run].any():
            return
        rows = self._read(run)
        cuts = self._cutter.cut(rows, more=False)
        if len(cuts) >= len(run) and not self._is_old[run].any():
            return
        keys = encoded_values(rows.column(self._manifest.key_column))
        self._new.append(self._writer.write(keys, cuts.bounds, seal(rows, cuts)))
        self._places.append(np.full(len(cuts), run[0]))
        self._gone.append(run)

    def _read(self, pages: NDArray[np.int64]) -> pa.RecordBatch:
        table = read_pages(self._manifest.stored, self._manifest.files, self._index, pages)
        return table.combine_chunks().to_batches()[0]

    def finish(self) -> Rewritten:
        nothing = np.empty(0, np.int64)
        return Rewritten(
            pages=np.concatenate([nothing, *self._gone]),
            index=PageIndex.concat(self._new),
            places=np.concatenate([nothing, *self._places]),
            files=self._writer.finish(),
            keys=None,
        )
