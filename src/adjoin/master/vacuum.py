"""Removing old versions that nobody reads, and files that no version names.

Readers and writers are not blocked. A version is removed under an exclusive lock on its manifest, which
nobody can get while the version is open. Its files are removed if no remaining version names them: a writer
has its base open, so whatever it commits names files of a remaining version, or new ones. Only files that
were never committed look the same as those that a writer is creating; they are removed when nobody is
writing.
"""

import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from adjoin.arguments import parse_duration
from adjoin.errors import CorruptionError, OptionError, StorageError
from adjoin.master import files
from adjoin.master.base_records import BaseRecords
from adjoin.master.data_file import DataFile
from adjoin.master.manifest import Manifest
from adjoin.master.version_records import QueryRecords, recorded_elsewhere, register
from adjoin.master.versions import OWN_NAME, Home

SPARED_BYTES = 4 << 20
"""Up to this disk use, young versions are not removed, however few bytes are live."""

_LOCKED_AT_ONCE = 64


@dataclass(frozen=True)
class Vacuumed:
    """What `Master.vacuum` has removed.

    Attributes:
        versions: The removed versions.
        files: The number of data, index, filter and temporary files removed.
        bytes: Their total length.
    """

    versions: tuple[int, ...]
    files: int
    bytes: int


@dataclass(frozen=True)
class Retention:
    """Which versions are kept even if nobody has them open.

    Attributes:
        keep: How many of the newest versions.
        keep_seconds: The age below which versions are kept.
    """

    keep: int = 10
    keep_seconds: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.keep, int) or isinstance(self.keep, bool) or self.keep < 1:
            raise OptionError(f"keep={self.keep!r}: the newest version cannot be removed; give 1 or more")

    def too_old(self, versions: Sequence[int], manifests: Mapping[int, Manifest]) -> list[int]:
        """Those of the versions that need not be kept; one without a manifest here counts as old."""
        youngest = time.time() - self.keep_seconds
        return [
            version
            for version in versions[: -self.keep]
            if not self.keep_seconds
            or version not in manifests
            or datetime.fromisoformat(manifests[version].created).timestamp() < youngest
        ]


def retention_of(keep: int | None, keep_for: str | timedelta | None) -> Retention | None:
    """The retention that a user asks for; None, for no upkeep at all, if `keep` is None or False."""
    seconds = 0.0 if keep_for is None else parse_duration("keep_for", keep_for)
    return None if keep is None or keep is False else Retention(keep, seconds)


def vacuum(home: Home, retention: Retention, places: Iterable[str | os.PathLike[str]] = ()) -> Vacuumed:
    """Remove versions that are neither retained nor in use, then files that no version names.

    In use is a version that is open, or that the record of a micro-batch or of a change set names.
    """
    if isinstance(places, str | bytes | os.PathLike) or not isinstance(places, Iterable):
        raise OptionError(f"records={places!r}: give a list of directories")
    for place in places:
        register(home, place)
    versions = home.versions()
    older = home.read_manifests(versions[: -retention.keep], damaged_too=False)
    old = retention.too_old(versions, older)
    _refuse_missing(home, home.read_manifests([version for version in versions if version not in old]))
    _forget(home)
    gone = _Bin()
    removed = _remove_versions(home, old, older, gone)
    _remove_orphans_if_nobody_writes(home, gone)
    return Vacuumed(tuple(removed), gone.files, gone.bytes)


def vacuum_after_commit(home: Home, retention: Retention) -> Vacuumed:
    """Like `vacuum`, but while disk use is too high, retained versions are removed too, the oldest first.

    Too high is more than twice the live bytes of the newest version (or 4 MB, if that is more) plus the bytes
    that versions in use hold. What fails now is done after the next commit.
    """
    removed: list[int] = []
    gone = _Bin()
    with suppress(OSError, StorageError, CorruptionError):  # the commit is done, whatever fails here
        versions = home.versions()
        sizes = _sizes(home)
        in_all = sum(sizes.values()) + sum(_size(home.manifest_path(version)) for version in versions)
        if len(versions) > retention.keep or in_all > SPARED_BYTES:
            _forget(home)
            read = home.read_manifests(versions)
            _refuse_missing(home, read)
            removed += _remove_versions(home, retention.too_old(versions, read), read, gone)
            left = {version: read[version] for version in read if version not in removed}
            if in_all > SPARED_BYTES:
                removed += _remove_versions(home, _under_pressure(home, left, sizes), left, gone)
        _remove_orphans_if_nobody_writes(home, gone)
    return Vacuumed(tuple(removed), gone.files, gone.bytes)


def _sizes(home: Home) -> dict[str, int]:
    """Sizes of all data, index, filter and temporary files, by name."""
    found: dict[str, int] = {}
    for directory in filter(os.path.isdir, home.file_dirs):
        for entry in os.scandir(directory):
            with suppress(FileNotFoundError):
                found[entry.name] = entry.stat().st_size
    return found


class _Bin:
    """Removes files and counts them."""

    def __init__(self) -> None:
        self.files = 0
        self.bytes = 0

    def add(self, path: str) -> None:
        size = _size(path)
        files.unlink(path)
        self.files += 1
        self.bytes += size


def _refuse_missing(home: Home, manifests: Mapping[int, Manifest]) -> None:
    """Raise a CorruptionError if a named file is missing: then nothing can safely be called garbage."""
    there = _sizes(home)
    for version, manifest in manifests.items():
        for name in sorted(manifest.file_names() - there.keys()):
            places = (os.path.join(directory, name) for directory in home.file_dirs)
            # Another vacuum may be removing this version; it removes the manifest first.
            if not any(map(os.path.exists, places)) and os.path.exists(home.manifest_path(version)):
                raise CorruptionError(
                    f"{home.manifest_path(version)} names {name}, which is missing, so nothing was removed: "
                    "restore the file, or the manifest if it belongs to another master"
                )


def _forget(home: Home) -> None:
    for own in (QueryRecords(home), BaseRecords(home)):
        own.forget()
    for records in recorded_elsewhere(home):
        with suppress(StorageError):  # records that cannot be removed still pin their versions
            records.forget()


def _recorded(home: Home) -> set[int]:
    pinned = QueryRecords(home).pinned() | BaseRecords(home).pinned()
    return pinned.union(*(records.pinned() for records in recorded_elsewhere(home)))


def _remove_versions(
    home: Home, versions: Sequence[int], read: Mapping[int, Manifest], gone: _Bin
) -> list[int]:
    """Remove the versions that are not in use, with the files that only they name."""
    removed: list[int] = []
    for start in range(0, len(versions), _LOCKED_AT_ONCE):
        removed += _remove_unused(home, versions[start : start + _LOCKED_AT_ONCE])
    if not removed:
        return []
    # A removed manifest must not come back after a power cut once its files are gone.
    files.sync_dir(home.versions_dir)
    _refuse_missing(home, home.read_manifests(home.versions()))
    garbage: set[str] = set().union(*(read[version].file_names() for version in removed if version in read))
    garbage -= home.named_files()
    for name in sorted(garbage):
        directory = home.data_dir if os.path.exists(os.path.join(home.data_dir, name)) else home.index_dir
        gone.add(os.path.join(directory, name))
    return removed


def _remove_unused(home: Home, versions: Sequence[int]) -> list[int]:
    """Remove the manifests of the versions that are not in use.

    A version is open until it is recorded, so its lock must be taken before the records are read. The
    successor of an open version stays: its number must remain taken, or a writer based on the open version
    would commit it a second time.
    """
    with ExitStack() as locks:
        unused = _lock_unused(home, versions, locks)
        for version in unused:
            files.unlink(home.manifest_path(version))
    return unused


def _lock_unused(home: Home, versions: Sequence[int], locks: ExitStack) -> list[int]:
    there = set(home.versions())
    locked = set()
    for version in versions:
        lock = files.lock_file(home.manifest_path(version), exclusive=True)
        if lock is not None:
            locks.enter_context(lock)
            locked.add(version)
    unused = sorted(locked - _recorded(home))
    free = []
    for version in unused:
        before = version - 1
        lock = None
        if before in there and before not in locked:
            lock = files.lock_file(home.manifest_path(before), exclusive=True)
            if lock is None:
                continue
            locks.enter_context(lock)
        free.append(version)
    return free


def _under_pressure(home: Home, manifests: Mapping[int, Manifest], sizes: Mapping[str, int]) -> list[int]:
    """The versions to remove, oldest first and never the newest, to bring disk use within its bounds."""
    *older, newest = sorted(manifests)
    with ExitStack() as locks:
        unused = set(_lock_unused(home, older, locks))
    users = Counter(name for manifest in manifests.values() for name in manifest.file_names())
    use = sum(sizes.get(name, 0) for name in users)
    use += sum(_size(home.manifest_path(version)) for version in manifests)
    held = [manifests[version] for version in older if version not in unused]
    allowed = _allowed(home, manifests[newest], held, sizes)
    chosen: list[int] = []
    for version in sorted(unused):
        if use <= allowed:
            break
        chosen.append(version)
        use -= _size(home.manifest_path(version))
        for name in manifests[version].file_names():
            users[name] -= 1
            use -= 0 if users[name] else sizes.get(name, 0)
    return chosen


def _allowed(home: Home, newest: Manifest, held: Sequence[Manifest], sizes: Mapping[str, int]) -> int:
    """Twice the live bytes of the newest version, plus what only versions in use hold."""
    own = newest.file_names()
    live = sum(sizes.get(name, 0) for name in own) + _size(home.manifest_path(newest.version))
    for relation in newest.relations():
        live -= sum(map(_room_for_pages, relation.files)) - relation.bytes
    others = set().union(*(manifest.file_names() for manifest in held)) - own
    used = sum(sizes.get(name, 0) for name in others)
    return max(2 * live, SPARED_BYTES) + used + sum(_size(home.manifest_path(one.version)) for one in held)


def _room_for_pages(file: DataFile) -> int:
    return file.bytes - file.header_bytes - file.footer_bytes


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0


def _remove_orphans_if_nobody_writes(home: Home, gone: _Bin) -> None:
    files.make_lock_file(home.lock_path)
    lock = files.lock_file(home.lock_path, exclusive=True)
    if lock is not None:
        with lock:
            manifests = home.read_manifests(home.versions())
            _refuse_missing(home, manifests)
            named = set().union(*(manifest.file_names() for manifest in manifests.values()))
            for path in orphans(home, named):
                gone.add(path)


def orphans(home: Home, named: set[str]) -> list[str]:
    """Files that no version names; the caller holds the exclusive lock of writers.

    Only files that are named as adjoin does count: the directory may have had other files before the build.
    """
    return sorted(
        entry.path
        for directory in filter(os.path.isdir, home.file_dirs)
        for entry in os.scandir(directory)
        if entry.name not in named and OWN_NAME.fullmatch(entry.name)
    )
