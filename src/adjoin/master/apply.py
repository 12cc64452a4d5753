"""Applying changes: copy-on-write of the pages they touch, committed as the next version.

Different processes can rewrite the pages of different key ranges; a single one commits them all.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adjoin.arguments import MOST_WHOLE, shown
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
        in_order: Whether the changes of a key take effect in the order in which they arrive.
        sequence: The column whose greatest value wins, also across change sets.
        tombstone_seconds: How long deletes with a sequence are remembered, at least; None means forever.
        at: The current time.
        is_tidy: Whether to move pages out of badly filled files; see `adjoin.master.page_moves`.
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
    at: datetime = field(default_factory=lambda: now_utc())  # noqa: PLW0108 (tests replace `now_utc`)

    @property
    def order_columns(self) -> tuple[str, ...]:
        """The columns that order the changes of a key; the sequence comes first."""
        if self.sequence is None:
            return self.order_by
        return (self.sequence, *(name for name in self.order_by if name != self.sequence))

    def __post_init__(self) -> None:
        if self.txn is not None and not (_is_name(self.txn) or _is_numbered(self.txn)):
            raise OptionError(f"txn={shown(self.txn)}: give a name, a name and a number as a tuple, or None")
        if not all(map(_is_name, self.order_by)) or len(set(self.order_by)) < len(self.order_by):
            raise OptionError(f"order_by={self.order_by!r}: give a column name, or several different ones")
        if self.sequence is not None and not _is_name(self.sequence):
            raise OptionError(f"sequence={self.sequence!r}: give a column name, or None")
        if self.sequence == OPERATION_COLUMN:
            raise OptionError(
                f"sequence={self.sequence!r} is the column of operations; give one with times or numbers"
            )
        wrong = [item for item in self.marks.items() if not (_is_name(item[0]) and _is_integer(item[1]))]
        if wrong:
            raise OptionError(f"marks={shown(dict(wrong))}: give each mark a name and a whole number")


def now_utc() -> datetime:
    return datetime.now(UTC)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value <= MOST_WHOLE


def _is_numbered(txn: object) -> bool:
    if not isinstance(txn, tuple) or len(txn) != 2:
        return False
    name, number = txn
    return _is_name(name) and _is_integer(number) and number >= 0


@dataclass(frozen=True)
class Base:
    """The version to be changed."""

    manifest: Manifest
    index: PageIndex
    filter: KeyFilter | None
    has_new_columns: bool = False


def apply(home: Home, base: Base, changes: Any, options: ApplyOptions) -> int | None:
    """Commit the revision after `base` and return its version, None if nothing changes.

    The caller holds the lock of writers.
    """
    schema, batches = open_changes(changes)
    base = with_new_columns(base, schema, options)
    part = rewrite(home, base.manifest, base.index, schema, batches, options)
    return commit_next(home, base, [part], options)


def with_new_columns(base: Base, changes: pa.Schema, options: ApplyOptions) -> Base:
    """The base, extended with columns that only the changes have if `evolve` is set."""
    if not options.evolve:
        return base
    known = {*base.manifest.schema.names, OPERATION_COLUMN, *options.order_by, options.sequence}
    new = {field.name: stored_type(field.name, field.type) for field in changes if field.name not in known}
    if not new:
        return base
    return replace(base, manifest=evolved(base.manifest, Evolution.of(add=new)), has_new_columns=True)


def refuse_stale(path: str, base: Manifest, newest: Manifest) -> None:
    """Raise ConflictError if rows or columns have changed since the base; pages may have moved."""
    if newest.revision != base.revision:
        raise ConflictError(
            f"version {newest.version} of {path} was committed after version {base.version}, which this "
            "change is based on; open the master again and repeat the change"
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
    """Write new versions of the pages that the changes touch; the caller commits or discards the result.

    Args:
        home: The master's directory.
        manifest: The version to be changed.
        index: Its index.
        schema: The columns of the changes.
        batches: The changes.
        options: How to apply them.
        first_page: Pages before this one are left alone; keys after them get pages of their own.
        marker: Prefix of the names of all files; see `files.new_name`.
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


def _move_here(page_bytes: int) -> Mover:  # noqa: ARG001 (it moves any number of pages)
    return move


def commit_next(
    home: Home,
    base: Base,
    parts: Sequence[Rewritten],
    options: ApplyOptions,
    mover_for: MoverFor = _move_here,
) -> int | None:
    """Commit parts, given in key order, as the next revision; returns its version, None if nothing changes.

    If other writers have only moved pages in the meantime, the parts are committed on top of that. Files
    that do not become part of a version are removed.
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
    """The manifest of the next version, None if nothing changes."""
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
    """The newest version as the base, if it differs only in where pages are; else raise the conflict."""
    pinned = home.pin()
    pins.enter_context(pinned.lock)
    newest = pinned.manifest
    refuse_stale(home.path, base.manifest, newest)
    index = MappedIndex(home, newest).index
    if newest.id != base.manifest.id or base.has_new_columns or not same_pages(index, base.index):
        raise ConflictError(
            f"version {newest.version} of {home.path} has other pages than version "
            f"{base.manifest.version}, which this change is based on; open the master again and repeat "
            "the change"
        )
    return replace(base, manifest=newest, index=index)


def _recorded(
    home: Home,
    manifest: Manifest,
    records: Sequence[SpooledRecords],
    options: ApplyOptions,
    created: list[str],
) -> Latest:
    """The latest changes, updated with records given in key order; see `adjoin.master.latest`."""
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
    """The base's manifest, with the pages of the parts in place of those they replace."""
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
    """Remaining old entries and new ones in key order; files without pages are dropped."""
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
    """The encoded keys of all pages, in order."""
    step = max(1, chunk_bytes // manifest.page_bytes)
    for start in range(0, len(index), step):
        wanted = np.arange(start, min(start + step, len(index)))
        table = read_pages(manifest.stored, data_files, index, wanted)
        yield encoded_values(table.column(manifest.key_column))
