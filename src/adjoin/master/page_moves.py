"""Compaction: moving pages from files that are mostly garbage, or numerous and small, to new files.

A single page in use keeps its whole file on disk. Pages are copied byte for byte, so they keep their keys,
checksums and numbers: the resulting version differs from its base only in where pages are, and everything
known about a page by its number or checksum stays true.

`Master.apply` moves pages of its own version before committing it, as many as it takes to keep two rules:

- *Garbage*: data files take at most 1.5 bytes for each byte of live pages. While they take more, the
  file with the smallest live share is emptied. With B bytes in files and L bytes live, B > 1.5 L means that
  this share is less than two thirds, so each moved byte frees at least half a byte. B <= 1.5 L held at the
  last commit; a commit that writes w bytes and replaces d raises the excess B - 1.5 L to at most
  1.5 d - 0.5 w. So it moves at most 3 d bytes, plus the live pages of one file.
- *Number*: files with less than 32 MB of live pages are classed by size, in steps of a factor of eight from
  64 KB, and each class has fewer than eight files. If it has more, they become one file, which belongs to
  a later class: so a page is moved once per class, and there are at most 28 small files.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from adjoin.master import files
from adjoin.master.data_file import FILE_BYTES, DataFile, PageWriter, read_sealed
from adjoin.master.index import PageIndex
from adjoin.master.manifest import Manifest
from adjoin.master.versions import Home
from adjoin.memory.arena import BLOCK_BYTES

MOST_USE = 1.5
"""The most bytes of data files for each byte of live pages."""

_LEAST_BYTES = 1 << 20
_STEPS = np.array([64 << 10, 512 << 10, 4 << 20, 32 << 20])
_FILES_OF_A_STEP = 8
_MERGED_BYTES = 64 << 20
_WELL_FILLED = 0.9
_CHUNK_BYTES = 8 << 20


@dataclass(frozen=True)
class Moved:
    """Pages that were copied into new files, which belong to no version yet.

    Attributes:
        pages: The pages, in key order.
        file: The new file of each, as a position in `files`.
        block: The block at which it begins there.
        files: The new files; their layouts are numbered as in the relation that the pages come from.
    """

    pages: NDArray[np.int64]
    file: NDArray[np.int32]
    block: NDArray[np.int32]
    files: list[DataFile]

    @classmethod
    def concat(cls, parts: Sequence["Moved"]) -> "Moved":
        """Combine all parts, in the order of pages."""
        before = np.cumsum([0, *(len(part.files) for part in parts)])
        pages = np.concatenate([np.empty(0, np.int64), *(part.pages for part in parts)])
        moved_to = [part.file + start for part, start in zip(parts, before, strict=False)]
        order = np.argsort(pages)
        return cls(
            pages[order],
            np.concatenate([np.empty(0, np.int32), *moved_to]).astype(np.int32)[order],
            np.concatenate([np.empty(0, np.int32), *(part.block for part in parts)])[order],
            [file for part in parts for file in part.files],
        )


Mover: TypeAlias = Callable[[Home, Manifest, PageIndex, NDArray[np.int64]], Moved]
"""Copies pages of a relation into new files."""

MoverFor: TypeAlias = Callable[[int], Mover]
"""Chooses the mover for pages of this total size."""


def move(
    home: Home, relation: Manifest, index: PageIndex, pages: NDArray[np.int64], marker: str = ""
) -> Moved:
    """Copy the pages in this process, a few megabytes at a time; on failure nothing is left behind."""
    layouts = np.array([file.layout for file in relation.files], np.int64)[index.file[pages]]
    parts: list[Moved] = []
    try:
        parts.extend(
            _move_alike(home, relation, index, pages[layouts == layout], layout, marker)
            for layout in np.unique(layouts).tolist()
        )
    except BaseException:
        for part in parts:
            for file in part.files:
                files.discard(file.path)
        raise
    return Moved.concat(parts)


def _move_alike(
    home: Home, relation: Manifest, index: PageIndex, pages: NDArray[np.int64], layout: int, marker: str
) -> Moved:
    writer = PageWriter(home.data_dir, relation.layouts[layout].schema, FILE_BYTES, marker)
    file, block = [], []
    try:
        ends = np.cumsum(index.blocks[pages], dtype=np.int64) * BLOCK_BYTES
        for chunk in np.split(pages, np.flatnonzero(np.diff(ends // _CHUNK_BYTES)) + 1):
            ordinal, blocks = writer.append(read_sealed(relation.files, index, chunk))
            file.append(np.full(len(chunk), ordinal, np.int32))
            block.append(blocks)
        finished = [replace(one, layout=layout) for one in writer.finish()]
    except BaseException:
        writer.discard()
        raise
    return Moved(pages, np.concatenate(file), np.concatenate(block), finished)


def tidied(
    home: Home, relation: Manifest, index: PageIndex, mover_for: MoverFor, created: list[str]
) -> tuple[PageIndex, list[DataFile]]:
    """Index and files of a relation, committed or not, after moving what the rules of this module demand."""
    pages = pages_of(index, files_to_empty(relation.files, index))
    if len(pages) == 0:
        return index, list(relation.files)
    mover = mover_for(int(index.blocks[pages].sum(dtype=np.int64)) * BLOCK_BYTES)
    moved = mover(home, relation, index, pages)
    created += [file.path for file in moved.files]
    return placed(index, relation.files, moved)


def placed(
    index: PageIndex, data_files: Sequence[DataFile], moved: Moved
) -> tuple[PageIndex, list[DataFile]]:
    """The index with the moved pages at their new places, and the files that it needs."""
    file, block = index.file.copy(), index.block.copy()
    file[moved.pages] = moved.file + len(data_files)
    block[moved.pages] = moved.block
    return in_used_files(replace(index, file=file, block=block), [*data_files, *moved.files])


def in_used_files(index: PageIndex, data_files: Sequence[DataFile]) -> tuple[PageIndex, list[DataFile]]:
    """The index renumbered to the files that have pages, and those files."""
    used, renumbered = np.unique(index.file, return_inverse=True)
    index = replace(index, file=renumbered.astype(np.int32))
    return index, [data_files[ordinal] for ordinal in used.tolist()]


def pages_of(index: PageIndex, emptied: NDArray[np.int64]) -> NDArray[np.int64]:
    """The pages in these files."""
    return np.flatnonzero(np.isin(index.file, emptied))


def _live_bytes(data_files: Sequence[DataFile], index: PageIndex) -> NDArray[np.int64]:
    """For each file, the bytes of its pages that are in the index."""
    blocks = np.bincount(index.file, weights=index.blocks, minlength=len(data_files))
    return blocks.astype(np.int64) * BLOCK_BYTES


def files_to_empty(data_files: Sequence[DataFile], index: PageIndex) -> NDArray[np.int64]:
    """The files whose pages a commit moves away."""
    live = _live_bytes(data_files, index)
    return np.union1d(_garbage(data_files, live), _too_many(live))


def _garbage(data_files: Sequence[DataFile], live: NDArray[np.int64]) -> NDArray[np.int64]:
    """The files with the smallest live share, as many as the garbage rule demands; see the module."""
    sizes = np.array([file.bytes for file in data_files], np.int64)
    envelopes = np.array([file.header_bytes + file.footer_bytes for file in data_files], np.int64)
    useful = live + envelopes
    if sizes.sum() <= max(_LEAST_BYTES, MOST_USE * useful.sum()):
        return np.empty(0, np.int64)
    worst_first = np.argsort(useful / sizes)
    freed = np.cumsum((sizes - live)[worst_first])
    needed = np.cumsum((useful - live)[worst_first])
    use_after = (sizes.sum() - freed) / np.maximum(1, useful.sum() - needed)
    enough = np.flatnonzero(use_after <= MOST_USE)
    return worst_first[: int(enough[0]) + 1 if len(enough) else len(worst_first)]


def _too_many(live: NDArray[np.int64]) -> NDArray[np.int64]:
    """The files of the first class that has eight, and of the classes below it, up to 64 MB."""
    step = np.searchsorted(_STEPS, live, "right")
    counts = np.bincount(step, minlength=len(_STEPS) + 1)[: len(_STEPS)]
    crowded = np.flatnonzero(counts >= _FILES_OF_A_STEP)
    if len(crowded) == 0:
        return np.empty(0, np.int64)
    chosen = np.flatnonzero(step <= crowded[0])
    chosen = chosen[np.argsort(live[chosen], kind="stable")]
    fits = int(np.searchsorted(np.cumsum(live[chosen]), _MERGED_BYTES, "right"))
    return chosen[: max(2, fits)]


def worth_emptying(data_files: Sequence[DataFile], index: PageIndex) -> NDArray[np.int64]:
    """All files that are not well filled, and all small ones if there are several."""
    live = _live_bytes(data_files, index)
    sizes = np.array([file.bytes for file in data_files], np.int64)
    envelopes = np.array([file.header_bytes + file.footer_bytes for file in data_files], np.int64)
    sparse = live + envelopes < _WELL_FILLED * sizes
    small = live < _STEPS[-1]
    chosen = np.flatnonzero(sparse | small)
    return chosen if len(chosen) > 1 or sparse.any() else np.empty(0, np.int64)


def moved_onto(
    newer: Manifest, newer_index: PageIndex, relation: Manifest, index: PageIndex, moved: Moved
) -> tuple[PageIndex, list[DataFile]] | None:
    """The newer relation with the same moves, for the pages it still has in place; None if it has none."""
    ordinals = {file.name: ordinal for ordinal, file in enumerate(relation.files)}
    known = np.array([ordinals.get(file.name, -1) for file in newer.files], np.int64)
    theirs = _places(known[newer_index.file], newer_index.block)
    ours = _places(index.file[moved.pages].astype(np.int64), index.block[moved.pages])
    order = np.argsort(ours)
    found = np.minimum(np.searchsorted(ours, theirs, sorter=order), max(0, len(ours) - 1))
    hits = np.flatnonzero(ours[order[found]] == theirs) if len(ours) else np.empty(0, np.int64)
    if len(hits) == 0:
        return None
    source = order[found[hits]]
    layouts = np.array([file.layout for file in newer.files], np.int64)[newer_index.file[hits]]
    layout_of = dict(zip(moved.file[source].tolist(), layouts.tolist(), strict=True))
    new_files = [replace(file, layout=layout_of.get(ordinal, 0)) for ordinal, file in enumerate(moved.files)]
    again = Moved(hits, moved.file[source], moved.block[source], new_files)
    return placed(newer_index, newer.files, again)


def _places(file: NDArray[np.int64], block: NDArray[np.int32]) -> NDArray[np.int64]:
    return (file << 32) | block


def same_pages(one: PageIndex, other: PageIndex) -> bool:
    """Whether both list the same pages in the same order, wherever the pages lie."""
    return len(one) == len(other) and all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("first", "last", "rows", "checksum")
    )
