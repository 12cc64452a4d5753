"""Applying changes: copy-on-write of the pages they touch, committed as the next version.

Pages of different ranges of keys can be rewritten in different places; they are committed in one.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adjoin.errors import ConflictError, OptionError
from adjoin.keys.casts import stored_type
from adjoin.keys.codec import encoded_values
from adjoin.master.build import concat_index, write_index
from adjoin.master.changes import OPERATION_COLUMN, ChangeSet, open_changes
from adjoin.master.data_file import DataFile, read_pages
from adjoin.master.evolve import Evolution, evolved
from adjoin.master.filter import KeyFilter
from adjoin.master.index import PageIndex
from adjoin.master.latest import (
    NOT_SWEPT,
    LatestChanges,
    Recorder,
    expired_before,
    merge_records,
    next_sweep,
)
from adjoin.master.manifest import Latest, Manifest, Txn
from adjoin.master.page_moves import Mover, MoverFor, in_used_files, move, same_pages, tidied
from adjoin.master.rewriter import Rewriter, Rewritten, slice_bytes
from adjoin.master.sequence import sequence_type
from adjoin.master.spool import KeySpool, SpooledRecords, filter_of
from adjoin.master.verify import MappedIndex
from adjoin.master.versions import Home


@dataclass(frozen=True)
class ApplyOptions:
    """How changes are applied; see `Master.apply`.

    Attributes:
        in_order: True if changes of one key count in the order in which they come.
        sequence: The column whose greatest value counts, also among change sets.
        tombstone_seconds: For how long deletes with a sequence are remembered at least; None: for ever.
        at: When this is.
        is_tidy: Whether pages are moved out of badly filled files; see `adjoin.master.page_moves`.
    """

    txn: Txn | None = None
    order_by: tuple[str, ...] = ()
    evolve: bool = False
    marks: Mapping[str, int] = field(default_factory=dict)
    memory_bytes: int = 256 << 20
    in_order: bool = True
    sequence: str | None = None
    tombstone_seconds: float | None = None
    is_tidy: bool = True
    at: datetime = field(default_factory=lambda: now_utc())  # noqa: PLW0108 (tests have another one)

    @property
    def order_columns(self) -> tuple[str, ...]:
        """The columns by which changes of one key are ordered; the sequence comes first."""
        if self.sequence is None:
            return self.order_by
        return (self.sequence, *(name for name in self.order_by if name != self.sequence))

    def __post_init__(self) -> None:
        if self.txn is not None and not (_is_name(self.txn) or _is_numbered(self.txn)):
            raise OptionError(f"txn={self.txn!r}: give a name, a pair of a name and a number, or None")
        if not all(map(_is_name, self.order_by)) or len(set(self.order_by)) < len(self.order_by):
            raise OptionError(f"order_by={self.order_by!r}: give the name of a column, or different names")
        if self.sequence is not None and not _is_name(self.sequence):
            raise OptionError(f"sequence={self.sequence!r}: give the name of a column, or None")
        if self.sequence == OPERATION_COLUMN:
            raise OptionError(
                f"sequence={self.sequence!r} says what a change does; give a column of times or numbers"
            )
        wrong = [item for item in self.marks.items() if not (_is_name(item[0]) and _is_integer(item[1]))]
        if wrong:
            raise OptionError(f"marks={dict(wrong)!r}: give a name and a whole number for each")


def now_utc() -> datetime:
    return datetime.now(UTC)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_numbered(txn: object) -> bool:
    if not isinstance(txn, tuple) or len(txn) != 2:
        return False
    name, number = txn
    return _is_name(name) and _is_integer(number) and number >= 0


@dataclass(frozen=True)
class Base:
    """The version that is changed."""

    manifest: Manifest
    index: PageIndex
    filter: KeyFilter | None
    has_new_columns: bool = False


def apply(home: Home, base: Base, changes: Any, options: ApplyOptions) -> int | None:
    """Commit the revision after `base`; its version, None if nothing changes. The caller locks writers."""
    schema, batches = open_changes(changes)
    base = with_new_columns(base, schema, options)
    part = rewrite(home, base.manifest, base.index, schema, batches, options)
    return commit_next(home, base, [part], options)


def with_new_columns(base: Base, changes: pa.Schema, options: ApplyOptions) -> Base:
    """The base with the columns that only the changes have, if they are to be added."""
    if not options.evolve:
        return base
    known = {*base.manifest.schema.names, OPERATION_COLUMN, *options.order_by, options.sequence}
    new = {field.name: stored_type(field.name, field.type) for field in changes if field.name not in known}
    if not new:
        return base
    return replace(base, manifest=evolved(base.manifest, Evolution.of(add=new)), has_new_columns=True)


def refuse_stale(path: str, base: Manifest, newest: Manifest) -> None:
    """Raise ConflictError if there are other rows or columns since the base; pages may have moved."""
    if newest.revision != base.revision:
        raise ConflictError(
            f"this is version {base.version} of {path} and version {newest.version} has been committed "
            "since; open the master again and apply the changes to it"
        )


def rewrite(
    home: Home,
    manifest: Manifest,
    index: PageIndex,
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
    options: ApplyOptions,
    first_page: int = 0,
    marker: str = "",
) -> Rewritten:
    """Write the pages that the changes touch anew; whoever has the result commits or discards it.

    Args:
        home: The master's directory.
        manifest: The version that is changed.
        index: Its index.
        schema: Columns of the changes.
        batches: The changes.
        options: How they are applied.
        first_page: Pages before it are left alone; keys that follow them get pages of their own.
        marker: Begins the names of all files, see `files.new_name`.
    """
    with ExitStack() as stack:
        sequence = None
        if options.sequence is not None:
            sequence = sequence_type(manifest, schema, options.sequence)
        change_set = ChangeSet(
            manifest, home, schema, options.memory_bytes, options.order_columns, marker, sequence
        )
        stack.callback(change_set.close)
        for batch in batches:
            change_set.add(batch)
        rewriter = Rewriter(home, manifest, index, options.memory_bytes, first_page, marker)
        stack.callback(rewriter.close)
        resolved = change_set.resolved(in_order=options.in_order)
        if sequence is None:
            for part in resolved:
                rewriter.add(part)
            return rewriter.finish()
        latest = LatestChanges.of(home, manifest, sequence)
        recorder = Recorder(home, latest, options.at, options.memory_bytes, marker)
        stack.callback(recorder.close)
        for part in resolved:
            rewriter.add(recorder.add(part))
        return replace(rewriter.finish(), records=recorder.finish())


def _move_here(page_bytes: int) -> Mover:  # noqa: ARG001 (as many as there are)
    return move


def commit_next(
    home: Home,
    base: Base,
    parts: Sequence[Rewritten],
    options: ApplyOptions,
    mover_for: MoverFor = _move_here,
) -> int | None:
    """Commit parts, given in the order of keys, as the next revision; its version, None if nothing changes.

    If pages were moved meanwhile, the parts take their places among the moved pages. What is left over is
    removed.
    """
    created = [file.path for part in parts for file in part.files]
    records = [part.records for part in parts if part.records is not None]
    first = base.manifest.version + 1
    try:
        with ExitStack() as pins:
            while True:
                following = _following(home, base, parts, options, mover_for, created)
                if following is None:
                    return None
                try:
                    home.commit(following)
                    return following.version
                except ConflictError:
                    base = _with_moved_pages(home, base, pins)
    finally:
        for part in parts:
            if part.keys is not None:
                part.keys.discard()
        for spooled in records:
            spooled.discard()
        home.discard_unless_committed(first, created)


def _following(
    home: Home,
    base: Base,
    parts: Sequence[Rewritten],
    options: ApplyOptions,
    mover_for: MoverFor,
    created: list[str],
) -> Manifest | None:
    """The next version, None if nothing changes."""
    manifest = base.manifest
    records = [part.records for part in parts if part.records is not None]
    chosen = mover_for if options.is_tidy else None
    if any(len(part.pages) or len(part.index) for part in parts):
        manifest = _merged(home, base, parts, options.memory_bytes, created, chosen)
    if records:
        manifest = replace(manifest, latest=_recorded(home, base.manifest, records, options, created))
    new_marks = {**manifest.marks, **options.marks} != manifest.marks
    is_same = manifest is base.manifest and not base.has_new_columns and not new_marks
    return None if is_same and options.txn is None else manifest.next(options.txn, options.marks)


def _with_moved_pages(home: Home, base: Base, pins: ExitStack) -> Base:
    """The newest version as base, which differs in places of pages alone; else the conflict remains."""
    pinned = home.pin()
    pins.enter_context(pinned.lock)
    newest = pinned.manifest
    refuse_stale(home.path, base.manifest, newest)
    index = MappedIndex(home, newest).index
    if newest.id != base.manifest.id or base.has_new_columns or not same_pages(index, base.index):
        raise ConflictError(
            f"version {newest.version} of {home.path} has its rows in other pages than version "
            f"{base.manifest.version}; open the master again and apply the changes to it"
        )
    return replace(base, manifest=newest, index=index)


def _recorded(
    home: Home,
    manifest: Manifest,
    records: Sequence[SpooledRecords],
    options: ApplyOptions,
    created: list[str],
) -> Latest:
    """The latest changes with records, given in the order of keys; see `adjoin.master.latest`."""
    assert options.sequence is not None
    memory_bytes, before = options.memory_bytes, expired_before(options.at, options.tombstone_seconds)
    latest = LatestChanges.of(home, manifest, records[0].sequence)
    after = NOT_SWEPT if manifest.latest is None else manifest.latest.swept
    sweep, swept = next_sweep(latest, after, records, before)
    part = merge_records(home, latest, records, memory_bytes, sweep)
    created += [file.path for file in part.files]
    chosen = _move_here if options.is_tidy else None
    relation = _merged(home, Base(latest.relation, latest.index, None), [part], memory_bytes, created, chosen)
    return Latest(options.sequence, relation, swept)


def _merged(
    home: Home,
    base: Base,
    parts: Sequence[Rewritten],
    memory_bytes: int,
    created: list[str],
    mover_for: MoverFor | None,
) -> Manifest:
    """The base's manifest with the pages of the parts in place of those that they replace."""
    manifest = base.manifest
    index, data_files = merge_index(base, parts)
    if mover_for is not None:
        index, data_files = tidied(
            home, replace(manifest, files=tuple(data_files)), index, mover_for, created
        )
    key_filter = base.filter.copy() if base.filter else None
    if key_filter is not None:
        for keys in (keys for part in parts if part.keys for keys in part.keys.chunks()):
            key_filter.add(keys)
        if key_filter.is_crowded:
            key_filter = _rebuild_filter(home, manifest, index, data_files, memory_bytes)
    index_file, filter_file = write_index(home, index, key_filter, created)
    return manifest.with_pages(index, tuple(data_files), index_file, filter_file)


def merge_index(base: Base, parts: Sequence[Rewritten]) -> tuple[PageIndex, list[DataFile]]:
    """Old entries that stay and new ones in the order of keys; files without pages are dropped."""
    newest = base.manifest.newest_layout
    new_files = [replace(file, layout=newest) for part in parts for file in part.files]
    data_files = [*base.manifest.files, *new_files]
    stays = np.ones(len(base.index), np.bool_)
    stays[np.concatenate([part.pages for part in parts])] = False
    kept = np.flatnonzero(stays)
    old = base.index.take(kept)
    both = concat_index([(old, len(base.manifest.files)), *((part.index, len(part.files)) for part in parts)])
    order = np.argsort(np.concatenate([kept, *(part.places for part in parts)]), kind="stable")
    index = both.take(order)
    index.check_invariants()
    return in_used_files(index, data_files)


def _rebuild_filter(
    home: Home, manifest: Manifest, index: PageIndex, data_files: list[DataFile], memory_bytes: int
) -> KeyFilter:
    spool = KeySpool(home.temporary(".keys"))
    try:
        for keys in stored_keys(manifest, data_files, index, slice_bytes(memory_bytes)):
            spool.add(keys)
        spooled = spool.finish()
    finally:
        spool.close()
    try:
        return filter_of([spooled], manifest.filter_bits)
    finally:
        spooled.discard()


def stored_keys(
    manifest: Manifest, data_files: list[DataFile], index: PageIndex, chunk_bytes: int
) -> Iterator[NDArray[np.int64]]:
    """The encoded keys of all pages in order."""
    step = max(1, chunk_bytes // manifest.page_bytes)
    for start in range(0, len(index), step):
        wanted = np.arange(start, min(start + step, len(index)))
        table = read_pages(manifest.stored, data_files, index, wanted)
        yield encoded_values(table.column(manifest.key_column))
