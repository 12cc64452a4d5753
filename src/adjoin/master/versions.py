"""Versions on disk: where files lie, which versions exist, and how they are committed and locked.

A version exists from the moment its manifest has its name; everything that it names is durable by then.
An open master holds a shared lock on its manifest (the pin), and a writer holds one on `writers.lock`.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from adjoin.arguments import local_path, whole_number
from adjoin.errors import ConflictError, CorruptionError, MasterNotFoundError, VersionNotFoundError
from adjoin.master import files
from adjoin.master.files import Bytes, Lock
from adjoin.master.manifest import Manifest

OWN_NAME = re.compile(r"[0-9a-f]{32}\.(arrow|json|keys|run)")
_MANIFEST_NAME = re.compile(r"(\d{20})\.json")


@dataclass(frozen=True)
class Pinned:
    """A manifest whose files stay on disk as long as the lock is held."""

    manifest: Manifest
    lock: Lock


class Home:
    """The directory of one master, given as a local path or `file:` URI."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(local_path(path))
        self.versions_dir = os.path.join(self.path, "versions")
        self.data_dir = os.path.join(self.path, "data")
        self.index_dir = os.path.join(self.path, "index")
        self.tmp_dir = os.path.join(self.path, "tmp")
        self.file_dirs = (self.data_dir, self.index_dir, self.tmp_dir)
        self.lock_path = os.path.join(self.path, "writers.lock")

    def create(self) -> None:
        """Make the directories durably, with all missing parents."""
        files.make_dir_durably(self.path)
        for directory in (self.versions_dir, *self.file_dirs):
            files.make_dir(directory)
        files.make_lock_file(self.lock_path)
        files.sync_dir(self.path)

    def manifest_path(self, version: int) -> str:
        return os.path.join(self.versions_dir, f"{version:020d}.json")

    def versions(self) -> list[int]:
        """Committed versions, oldest first."""
        try:
            names = os.listdir(self.versions_dir)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise files.storage_error(self.versions_dir, error) from error
        return sorted(int(match[1]) for name in names if (match := _MANIFEST_NAME.fullmatch(name)))

    def newest(self) -> int:
        versions = self.versions()
        if not versions:
            raise MasterNotFoundError(f"there is no master at {self.path}; build one with Master.build")
        return versions[-1]

    def pin(self, version: int | None = None) -> Pinned:
        """Lock and read a version, or the newest."""
        chosen, lock = self.lock(version)
        return Pinned(self._read_pinned(lock, chosen), lock)

    def lock(self, version: int | None = None) -> tuple[int, Lock]:
        """Lock a version, or the newest, so that it is not vacuumed; returns its number and the lock."""
        version = None if version is None else whole_number("version", version, 0)
        while True:
            chosen = self.newest() if version is None else version
            lock = files.lock_file(self.manifest_path(chosen))
            if lock is not None and lock.is_linked:
                return chosen, lock
            if lock is not None:
                lock.release()
            if version is not None:
                kept = self.versions()
                raise VersionNotFoundError(
                    f"version {version} of {self.path} was never committed or has been vacuumed; "
                    f"there are {len(kept)} versions" + (f" from {kept[0]} to {kept[-1]}" if kept else "")
                )

    def _read_pinned(self, lock: Lock, version: int) -> Manifest:
        try:
            return self.read_manifest(version)
        except BaseException:
            lock.release()
            raise

    def read_manifest(self, version: int) -> Manifest:
        path = self.manifest_path(version)
        manifest = Manifest.from_bytes(path, files.read_file(path), self.data_dir)
        if manifest.version != version:
            raise CorruptionError(
                f"{path} is the manifest of version {manifest.version}; restore the file from a copy"
            )
        return manifest

    def read_manifests(self, versions: Sequence[int], *, damaged_too: bool = True) -> dict[int, Manifest]:
        """The manifests of these versions, without those that are removed in the meantime.

        Raises:
            CorruptionError: One is damaged; without `damaged_too` it is left out instead.
        """
        found: dict[int, Manifest] = {}
        for version in versions:
            try:
                found[version] = self.read_manifest(version)
            except CorruptionError:
                if damaged_too and os.path.exists(self.manifest_path(version)):
                    raise
        return found

    def named_files(self, first: int = 0) -> set[str]:
        """Names of the files that versions need, from version `first` on."""
        while True:
            versions = [version for version in self.versions() if version >= first]
            found = self.read_manifests(versions)
            # If a version was removed since they were listed, one that shares its files may have been added.
            if len(found) == len(versions):
                return set().union(*(manifest.file_names() for manifest in found.values()))

    def lock_writers(self) -> Lock:
        """Take the lock that a writer holds so that `vacuum` does not take its new files for garbage."""
        files.make_lock_file(self.lock_path)
        lock = files.lock_file(self.lock_path)
        if lock is None:
            raise MasterNotFoundError(f"{self.path} was removed while it was being written; build it again")
        try:
            self._make_missing_dirs()
        except BaseException:
            lock.release()
            raise
        return lock

    def _make_missing_dirs(self) -> None:
        """Restore empty directories, which tools that copy only files leave out."""
        missing = [directory for directory in self.file_dirs if not os.path.isdir(directory)]
        for directory in missing:
            files.make_dir(directory)
        if missing:
            files.sync_dir(self.path)

    def commit(self, manifest: Manifest) -> None:
        """Make the version visible atomically; ConflictError if another writer was faster."""
        temporary = self.temporary(".json")
        try:
            files.write_file(temporary, manifest.to_bytes())
            files.link(temporary, self.manifest_path(manifest.version))
            files.sync_dir(self.versions_dir)
        except FileExistsError as error:
            raise ConflictError(
                f"another writer committed version {manifest.version} of {self.path} first; "
                "open the master again and repeat the change"
            ) from error
        finally:
            files.discard(temporary)

    def discard_unless_committed(self, version: int, paths: Sequence[str]) -> None:
        """Remove new files, except those that this version or a later one names.

        Even after an error, the version may have been committed.
        """
        named = self.named_files(version)
        for path in paths:
            if os.path.basename(path) not in named:
                files.discard(path)

    def write_index_file(self, data: Bytes, created: list[str]) -> str:
        """Write an index or filter file under a new name; the name is durable after `sync_dir`."""
        name = files.new_name(".arrow")
        created.append(os.path.join(self.index_dir, name))
        files.write_file(created[-1], data)
        return name

    def temporary(self, suffix: str, marker: str = "") -> str:
        return os.path.join(self.tmp_dir, files.new_name(suffix, marker))

    def marked(self, marker: str) -> list[str]:
        """Files whose names begin with the marker, whichever process created them."""
        return [
            os.path.join(directory, name)
            for directory in filter(os.path.isdir, self.file_dirs)
            for name in os.listdir(directory)
            if name.startswith(marker)
        ]
