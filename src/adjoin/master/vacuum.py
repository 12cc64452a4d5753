"""Removing old versions that nobody reads, and files that no version names."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from adjoin.errors import CorruptionError, OptionError
from adjoin.master import files
from adjoin.master.bases import BaseRecords
from adjoin.master.queries import QueryRecords
from adjoin.master.versions import OWN_NAME, Home

_LOCKED_AT_ONCE = 64


@dataclass(frozen=True)
class Vacuumed:
    """What `Master.vacuum` has removed.

    Attributes:
        versions: The versions.
        files: How many data, index, filter and temporary files.
        bytes: Their length in all.
    """

    versions: tuple[int, ...]
    files: int
    bytes: int


def vacuum(home: Home, keep: int) -> Vacuumed:
    """Remove all but the newest `keep` versions and those that are in use, then unnamed files.

    In use is a version that is open, and one that the record of a micro-batch or of a change set names.

    While a writer is at work nothing is removed: its files have no version yet, and a version
    removed under it could let it commit a number that was already taken.
    """
    if keep < 1:
        raise OptionError(f"keep={keep}: the newest version cannot be removed, give 1 or more")
    files.make_lock_file(home.lock_path)
    lock = files.lock_file(home.lock_path, exclusive=True)
    if lock is None:
        return Vacuumed((), 0, 0)
    with lock:
        versions = home.versions()
        named = _named_files(home, versions[-keep:])
        removed = _remove_versions(home, versions[:-keep])
        if removed:
            # A removed manifest must not come back after a power cut once its files are gone.
            files.sync_dir(home.versions_dir)
        named |= _named_files(home, [version for version in versions[:-keep] if version not in removed])
        count, size = remove_orphans(home, named)
    return Vacuumed(removed, count, size)


def _named_files(home: Home, versions: Sequence[int]) -> set[str]:
    """The files that these versions need; if one is missing, others are not to be called garbage."""
    named: set[str] = set()
    there = {name for path in filter(os.path.isdir, home.file_dirs) for name in os.listdir(path)}
    for version in versions:
        names = home.read_manifest(version).file_names()
        if not names <= there:
            raise CorruptionError(
                f"{home.manifest_path(version)} names {min(names - there)}, which is missing; vacuum stops: "
                "restore the file, or the manifest if it is not of this master"
            )
        named |= names
    return named


def _remove_versions(home: Home, versions: Sequence[int]) -> tuple[int, ...]:
    for records in (QueryRecords(home), BaseRecords(home)):
        records.forget()
    pinned = _recorded(home)
    unpinned = [version for version in versions if version not in pinned]
    removed: list[int] = []
    for start in range(0, len(unpinned), _LOCKED_AT_ONCE):
        removed += _remove_unpinned(home, unpinned[start : start + _LOCKED_AT_ONCE])
    return tuple(removed)


def _recorded(home: Home) -> set[int]:
    return QueryRecords(home).pinned() | BaseRecords(home).pinned()


def _remove_unpinned(home: Home, versions: Sequence[int]) -> list[int]:
    """Whoever records a version holds it open until it is recorded: so lock first, then read the records."""
    with ExitStack() as locks:
        unused = []
        for version in versions:
            lock = files.lock_file(home.manifest_path(version), exclusive=True)
            if lock is not None:
                locks.enter_context(lock)
                unused.append(version)
        pinned = _recorded(home)
        unused = [version for version in unused if version not in pinned]
        for version in unused:
            files.unlink(home.manifest_path(version))
    return unused


def remove_orphans(home: Home, named: set[str]) -> tuple[int, int]:
    """Remove files that are not named; the caller holds the exclusive lock of writers.

    Only names that adjoin gives are touched: a first build may have been pointed at a directory in use.
    """
    count = size = 0
    for directory in filter(os.path.isdir, home.file_dirs):
        for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
            if entry.name not in named and OWN_NAME.fullmatch(entry.name):
                size += entry.stat().st_size
                count += 1
                files.unlink(entry.path)
    return count, size
