"""Compacting a master: thin pages and those of older layouts are rewritten, then sparse files emptied.

Both steps commit a version of the same rows, hence of the same revision. The second one copies pages as
they are, so it is brought onto whatever other writers commit meanwhile. The first one makes other pages;
if another writer was faster, what it has made is dropped, and those pages wait for the next time.
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
    """Commit what there is to gain; the caller locks writers."""
    _rewrite_pages(home, memory_bytes)
    _move_pages(home, mover_for)


@dataclass(frozen=True)
class _Relation:
    """A relation of a version with its index."""

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
                return  # other writers have changed all of these pages
            try:
                home.commit(_with_places(home, pinned.manifest, placed, created))
            except ConflictError:
                continue
            return
    raise ConflictError(
        f"{_ATTEMPTS} times other writers of {home.path} were faster than compact; run it when fewer write"
    )


def _with_places(
    home: Home,
    manifest: Manifest,
    placed: Sequence[tuple[PageIndex, list[DataFile]] | None],
    created: list[str],
) -> Manifest:
    """The version after this one, its relations having these pages where there are any."""
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
    """Commit a version in which neighbors that are mostly empty share pages, and all pages have one layout.

    If somebody else commits meanwhile, nothing is done.
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
    """Merges runs of thin pages, and writes pages of older layouts in the newest.

    How thin a page is, only its rows tell. So a sample of pages is read to see how long rows are; a run whose
    pages turn out to be fuller than that let expect stays as it is.
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
        """Neighbors that seem to be less than half full, or have an older layout; they fit the memory."""
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
        """Write the rows of the run as full pages of the newest layout, unless that would gain nothing."""
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
