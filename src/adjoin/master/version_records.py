"""Which version of the master each micro-batch of each streaming query sees.

The first task of a micro-batch decides and writes a record. Its other tasks, on any host, and every replay
read that record. A record gets its name only when it is complete, and `version_for` returns only what
survives a power cut.

Records lie in the master's directory, or in another one (`records=`) for readers that cannot write
there. The master lists these directories, so that `vacuum` finds the records wherever they are.
"""

import errno
import fcntl
import hashlib
import json
import os
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from adjoin.arguments import local_path
from adjoin.errors import (
    CorruptionError,
    MasterReplacedError,
    OptionError,
    SchemaError,
    StorageError,
    VersionNotFoundError,
)
from adjoin.master import files
from adjoin.master.checksummed import with_checksum, without_checksum
from adjoin.master.evolve import refuse_other
from adjoin.master.versions import Home

ENDED = "ended"
FORGOTTEN_AFTER_DAYS = 30

_FORMAT = 2
_QUERY_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_RECORD_NAME = re.compile(r"(\d{20})\.json")
_TEMPORARY_NAME = re.compile(r"[0-9a-f]{32}\.tmp")
_MOST_BYTES = 4096
_DAY_SECONDS = 86_400
_ATTEMPTS = 1000
_PLACES_FOLDER = "places"
_PLACE_NAME = re.compile(r"[0-9a-f]{32}\.json")
_NOT_WRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT}


class VersionRecords:
    """Records of one master: `<root>/<owner>/<number>.json`, each with the version that was decided on.

    How it works: a record is written to a temporary file and then linked to its name, so that one of several
    tasks wins. Its version is locked until the record is in place, and `vacuum` reads the records only after
    locking what it is about to remove. A record with two names is not known to be durable yet; whoever
    reads it makes it durable first.

    Args:
        home: The master's directory.
        root: The directory of the records.
        master: The id of the master that must be there; None for any.
    """

    def __init__(self, home: Home, root: str, master: str | None = None) -> None:
        self._home = home
        self._root = root
        self._master = master

    def path_of(self, owner: str, number: int) -> str:
        """The path of the record with this number."""
        return f"{self._root}/{owner}/{number:020d}.json"

    def decide(self, owner: str, number: int, what: str) -> int:
        """The recorded version, or else the newest one, recording it.

        Args:
            owner: A UUID.
            number: The number of a micro-batch or change set.
            what: How errors refer to it.
        """
        path = self.path_of(owner, number)
        for _ in range(_ATTEMPTS):
            version = self.find(owner, number)
            if version is not None:
                self._refuse_missing(path, version, what)
                return version
            self._record(path, owner, number, self._find_elsewhere(owner, number))
        raise StorageError(f"{path} can be neither created nor read; remove what is there and try again")

    def find(self, owner: str, number: int) -> int | None:
        """The recorded version, if there is a record."""
        return self._read(self.path_of(owner, number), is_used=True)

    def _find_elsewhere(self, owner: str, number: int) -> int | None:  # noqa: ARG002 (for subclasses)
        """The version that is recorded in another directory."""
        return None

    def pinned(self) -> set[int]:
        """The versions that records name; `vacuum` keeps them."""
        versions = {
            self._read(f"{directory}/{name}")
            for directory in self._directories()
            for name in _names(directory)
            if _RECORD_NAME.fullmatch(name)
        }
        return {version for version in versions if version is not None}

    def forget(self) -> None:
        """Remove records of queries without a micro-batch for 30 days, and files that crashes have left."""
        oldest = time.time() - FORGOTTEN_AFTER_DAYS * _DAY_SECONDS
        for directory in self._directories():
            names = [f"{directory}/{name}" for name in _names(directory)]
            if max(map(_last_used, names), default=_last_used(directory)) < oldest:
                for path in names:
                    _remove_if_older(path, oldest)
                # Once versions are gone, the records that kept them must not come back after a power cut.
                files.sync_dir(directory)
                with suppress(OSError):
                    os.rmdir(directory)
            elif any(path.endswith(".tmp") for path in names):
                self._sync(directory)
                _remove_temporaries(directory)

    def _directories(self) -> list[str]:
        return [f"{self._root}/{name}" for name in _names(self._root) if _QUERY_ID.fullmatch(name)]

    def _read(self, path: str, *, is_used: bool = False) -> int | None:
        """The version in the record, or None if there is none."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise files.storage_error(path, error) from error
        try:
            found = os.fstat(descriptor)
            if found.st_nlink > 1:
                self._sync(os.path.dirname(path))
            if is_used and time.time() - found.st_mtime > _DAY_SECONDS and not _touch(descriptor, path):
                return None
            data = os.read(descriptor, _MOST_BYTES)
        except OSError as error:
            raise files.storage_error(path, error) from error
        finally:
            os.close(descriptor)
        return _version_of(path, data, self._master)

    def _record(self, path: str, owner: str, number: int, version: int | None) -> None:
        """Record this version, or the newest, unless another task is faster."""
        version, pin = self._home.lock(version)
        directory = os.path.dirname(path)
        temporary = f"{directory}/{uuid.uuid4().hex}.tmp"
        with pin:
            manifest = self._home.read_manifest(version)
            refuse_other(manifest, self._master or manifest.id, self._home.path)
            saved = {
                "format": _FORMAT,
                "master": manifest.id,
                "query": owner,
                "batch": number,
                "version": version,
            }
            try:
                files.make_dir_durably(os.path.dirname(self._root))
                files.make_dir(directory)
                files.write_file(temporary, with_checksum(json.dumps(saved).encode()))
                files.link(temporary, path)
            except BaseException as error:
                files.discard(temporary)
                if isinstance(error, FileExistsError) or _is_gone(error):
                    return
                raise
            self._sync(directory, _records_before(directory, number))
        self._tidy(directory, number)
        files.discard(temporary)

    def _sync(self, directory: str, others: list[str] | None = None) -> None:
        """Make the names of records durable, and with the first record those of the directories."""
        files.sync_dir(directory)
        if not others:
            files.sync_dir(self._root)
            files.sync_dir(os.path.dirname(self._root))

    @staticmethod
    def _tidy(directory: str, number: int) -> None:
        """Spark replays only the newest micro-batch, so a new record replaces all but the one before it."""
        for name in _records_before(directory, number)[:-1]:
            files.discard(f"{directory}/{name}")
        _remove_temporaries(directory)

    def _refuse_missing(self, path: str, version: int, what: str) -> None:
        manifest = self._home.manifest_path(version)
        if not os.path.exists(manifest):
            raise VersionNotFoundError(
                f"{what} was started with version {version} of {self._home.path}, which is gone: restore "
                f"{manifest} and the files it names, or, if a repetition may see another version, "
                f"remove {path}"
            )


class QueryRecords(VersionRecords):
    """Which version each micro-batch of each streaming query sees, and whether the query has ended.

    Args:
        home: The master.
        place: The directory for records, None for the master's own. It can serve any number of masters.
        master: The id of the master that must be there; None for any.
    """

    def __init__(
        self,
        home: Home | str | os.PathLike[str],
        place: str | os.PathLike[str] | None = None,
        master: str | None = None,
    ) -> None:
        home = home if isinstance(home, Home) else Home(home)
        self._place = None if place is None else os.path.abspath(local_path(place, "records"))
        super().__init__(home, _root_of(home, self._place, master), master)

    def version_for(self, query_id: str, batch_id: int) -> int:
        """The version that this micro-batch sees: the recorded one, or else the newest, recording it.

        Raises:
            VersionNotFoundError: The recorded version is gone.
            MasterNotFoundError: There is no master.
            CorruptionError: The record is damaged.
            StorageError: The record cannot be written.
            MasterReplacedError: The record, or the path by now, belongs to another master.
        """
        if not isinstance(batch_id, int) or isinstance(batch_id, bool) or not 0 <= batch_id < 1 << 63:
            raise OptionError(f"batch_id={batch_id!r}: give the number of a micro-batch, 0 or more")
        self.directory(query_id)  # raises if this is not a query id
        with self._cure():
            version = self.decide(query_id, batch_id, f"batch {batch_id} of query {query_id}")
        self.begin(query_id)
        return version

    def directory(self, query_id: str) -> str:
        """The directory of this query's records, and of the mark that it has ended."""
        if not isinstance(query_id, str) or not _QUERY_ID.fullmatch(query_id):
            raise OptionError(f"query_id={query_id!r}: give the id of a streaming query, a UUID")
        return f"{self._root}/{query_id}"

    def begin(self, query_id: str) -> str:
        """Mark the query as running: make its directory, remove its end mark; returns the directory."""
        directory = self.directory(query_id)
        with self._cure():
            if not os.path.isdir(directory):
                files.make_dir(directory)
            if os.path.exists(f"{directory}/{ENDED}"):
                files.discard(f"{directory}/{ENDED}")
        return directory

    def end(self, query_id: str) -> None:
        """Mark the query as ended, until it begins again; does nothing if it never began."""
        path = f"{self.directory(query_id)}/{ENDED}"
        try:
            files.make_lock_file(path)
        except StorageError as error:
            if not _is_gone(error):
                raise

    def has_ended(self, query_id: str) -> bool:
        return os.path.exists(f"{self.directory(query_id)}/{ENDED}")

    def _find_elsewhere(self, owner: str, number: int) -> int | None:
        """The query may have been given another directory since the micro-batch that it repeats."""
        if self._place is not None:
            with suppress(StorageError):  # the master may be read-only for this query
                register(self._home, self._place)
        for place in {None, *places(self._home)} - {self._place}:
            with suppress(StorageError):  # directories of other queries may not be readable for this one
                other = QueryRecords(self._home, place, self._master)
                version = other._read(other.path_of(owner, number))
                if version is not None:
                    return version
        return None

    @contextmanager
    def _cure(self) -> Iterator[None]:
        """Suggest `records=` if the master cannot be written."""
        try:
            yield
        except StorageError as error:
            cause = error.__cause__
            refused = isinstance(cause, OSError) and cause.errno in _NOT_WRITABLE
            if not refused or self._place is not None or "records=" in str(error):
                raise
            raise StorageError(
                f"{error}; or give a writable directory as enrich(..., records=PATH), where the query can "
                "record which version each micro-batch sees"
            ) from cause


def _root_of(home: Home, place: str | None, master: str | None) -> str:
    """A place has a directory for each master, named by its id: its path may differ between hosts."""
    if place is None:
        return os.path.join(home.path, "queries")
    if master is not None:
        return os.path.join(place, master)
    pinned = home.pin()
    with pinned.lock:
        return os.path.join(place, pinned.manifest.id)


def _digest(path: str) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:32]


def register(home: Home, place: str | os.PathLike[str]) -> None:
    """Let `vacuum` know that queries keep records of this master in another directory.

    Raises:
        StorageError: The master cannot be written.
    """
    place = os.path.abspath(local_path(place, "records"))
    directory = os.path.join(home.path, _PLACES_FOLDER)
    path = os.path.join(directory, f"{_digest(place)}.json")
    if os.path.exists(path):
        if time.time() - _changed_at(path) > _DAY_SECONDS:
            files.change("touch", path, lambda: os.utime(path))
        return
    home.newest()
    files.make_dir(directory)
    files.make_dir(home.tmp_dir)
    temporary = home.temporary(".json")
    entry = json.dumps({"format": _FORMAT, "place": place}).encode()
    try:
        files.write_file(temporary, with_checksum(entry))
        with suppress(FileExistsError):
            files.link(temporary, path)
        files.sync_dir(directory)
        files.sync_dir(home.path)
    finally:
        files.discard(temporary)


def places(home: Home) -> list[str]:
    """The registered directories, except for missing ones whose last query began over 30 days ago.

    Raises:
        CorruptionError: An entry of the list is damaged.
    """
    directory = os.path.join(home.path, _PLACES_FOLDER)
    oldest = time.time() - FORGOTTEN_AFTER_DAYS * _DAY_SECONDS
    found = []
    for name in filter(_PLACE_NAME.fullmatch, _names(directory)):
        path = f"{directory}/{name}"
        place = str(_checked(path, bytes(files.read_file(path)))["place"])
        if os.path.isdir(place) or _changed_at(path) > oldest:
            found.append(place)
    return found


def recorded_elsewhere(home: Home) -> list[QueryRecords]:
    """The records in all registered directories; `vacuum` reads them.

    Raises:
        StorageError: A directory is missing, perhaps not mounted: what its queries need is unknown.
    """
    every = places(home)
    for place in every:
        if not os.path.isdir(place):
            entry = os.path.join(home.path, _PLACES_FOLDER, f"{_digest(place)}.json")
            raise StorageError(
                f"{place}, where queries keep records of {home.path}, is missing, so the versions they need "
                f"are unknown: mount or restore it, or, if these queries have ended, remove {entry}"
            )
    return [QueryRecords(home, place) for place in every]


def _checked(path: str, data: bytes) -> dict[str, Any]:
    body = without_checksum(data)
    if body is None:
        raise CorruptionError(
            f"{path} is damaged (checksum differs): restore it from a copy, or, if a repetition of the "
            "micro-batch may see another version, remove it"
        )
    try:
        saved: dict[str, Any] = json.loads(body)
        is_newer = saved["format"] > _FORMAT
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise CorruptionError(f"{path} was not written by adjoin ({error}); remove it") from error
    if is_newer:
        raise SchemaError(
            f"{path} has format {saved['format']}, but this adjoin reads format {_FORMAT}: use a newer adjoin"
        )
    return saved


def _version_of(path: str, data: bytes, master: str | None) -> int:
    saved = _checked(path, data)
    written = {"query": str, "batch": int, "version": int}
    for name, type_ in written.items():
        if not isinstance(saved.get(name), type_):
            raise CorruptionError(f"{path} was not written by adjoin ({name}={saved.get(name)!r}); remove it")
    if f"{saved['query']}/{saved['batch']:020d}.json" != path[-len(saved["query"]) - 26 :]:
        raise CorruptionError(
            f"{path} is under the wrong name: it is the record of batch {saved['batch']} of query "
            f"{saved['query']}; remove it"
        )
    recorded = saved.get("master")  # records of the first format lack it
    if None not in (master, recorded) and recorded != master:
        raise MasterReplacedError(
            f"batch {saved['batch']} of query {saved['query']} was started with the master {recorded}, but "
            f"the query now reads the master {master}: restore the former, or, if a repetition may see "
            f"another master, remove {path}"
        )
    return int(saved["version"])


def _is_gone(error: BaseException) -> bool:
    """Whether `vacuum` has just removed the directory, because the query had been idle for so long."""
    return isinstance(error, StorageError) and isinstance(error.__cause__, FileNotFoundError)


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise files.storage_error(directory, error) from error


def _records_before(directory: str, batch_id: int) -> list[str]:
    """Names of the records of earlier micro-batches, oldest first."""
    return [name for name in _names(directory) if _RECORD_NAME.fullmatch(name) and int(name[:20]) < batch_id]


def _remove_temporaries(directory: str) -> None:
    """Remove temporary files that a crash has left: a running task needs its own only for milliseconds."""
    for name in _names(directory):
        path = f"{directory}/{name}"
        if _TEMPORARY_NAME.fullmatch(name) and _changed_at(path) < time.time() - _DAY_SECONDS:
            files.discard(path)


def _last_used(path: str) -> float:
    """When the record was written or touched; one that has just been removed counts as in use."""
    return _changed_at(path) or time.time()


def _changed_at(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except FileNotFoundError:
        return 0.0


def _touch(descriptor: int, path: str) -> bool:
    """Mark the record as in use, so that `vacuum` does not remove it; False if it just did."""
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    files.change("touch", path, lambda: os.utime(descriptor))
    return os.fstat(descriptor).st_nlink > 0


def _remove_if_older(path: str, oldest: float) -> None:
    lock = files.lock_file(path, exclusive=True)
    if lock is not None:
        with lock:
            if os.fstat(lock.descriptor).st_mtime < oldest:
                files.unlink(path)
