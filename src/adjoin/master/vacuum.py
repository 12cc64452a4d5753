"""Removing old versions that nobody reads, and files that no version names."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from adjoin.errors import CorruptionError, OptionError
from adjoin.master import files
from adjoin.master.versions import OWN_NAME, Home


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
    """Remove all but the newest `keep` versions and those that are pinned, then unnamed files.

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
        removed = tuple(version for version in versions[:-keep] if _remove_version(home, version))
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


def _remove_version(home: Home, version: int) -> bool:
    path = home.manifest_path(version)
    pin = files.lock_file(path, exclusive=True)
    if pin is None:
        return False
    with pin:
        files.unlink(path)
    return True


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
