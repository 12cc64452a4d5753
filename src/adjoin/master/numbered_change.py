"""Change sets that depend on the rows of the master: planned on one version, and repeatable."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

import pyarrow as pa

from adjoin.arguments import MOST_WHOLE, shown
from adjoin.errors import ConflictError, OptionError, VersionNotFoundError
from adjoin.master import files
from adjoin.master.base_records import BaseRecords
from adjoin.master.changes import OPERATION_COLUMN
from adjoin.master.evolve import refuse_other
from adjoin.master.manifest import Manifest
from adjoin.master.master import Master
from adjoin.master.versions import Home

_Result = TypeVar("_Result")
_ATTEMPTS = 20
_LONGEST_TURN_SECONDS = 60.0
_POLL_SECONDS = 0.01


@dataclass(frozen=True)
class Planned:
    """A planned change, and the marks to commit with it."""

    changes: pa.Table
    marks: Mapping[str, int] = field(default_factory=dict)


def upserts(master: Master, known: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    """Upserts of rows with these columns; the others are null."""
    rows = len(next(iter(known.values())))
    missing = [field for field in master.schema if field.name not in known]
    nulls = {field.name: pa.nulls(rows, field.type) for field in missing}
    return pa.table({OPERATION_COLUMN: pa.array(["upsert"] * rows, pa.string()), **known, **nulls})


@dataclass(frozen=True)
class Settled:
    """The versions before and after a change set; twice the same one if there was nothing to change.

    Attributes:
        before: The version that the change was planned on.
        after: The version that contains it.
        is_repetition: Whether an earlier run had already committed it.
    """

    before: Master
    after: Master
    is_repetition: bool


class NumberedChange:
    """A change set with a name and a number, planned on the rows of the version that it changes.

    How it works: the base version is recorded before it is read. The change is then committed as the next
    revision or not at all, so that a repetition finds the versions before and after it; any versions in
    between have the same rows in other places. If another writer commits first, the record is replaced by
    one of the newest version, and the change is planned again.

    Args:
        master: The master, at any version.
        txn: Name and number.
    """

    def __init__(self, master: Master, txn: tuple[str, int]) -> None:
        self._master = master.id
        self._home = Home(master.path)
        self._records = BaseRecords(self._home, master.id)
        self._txn = checked_txn(txn)

    def settle(self, plan: Callable[[Master], Planned | None]) -> Settled:
        """Plan and commit the change, unless that was done before.

        Args:
            plan: Takes a version and returns the change to make, or None if there is nothing to change.

        Raises:
            ConflictError: Other writers committed first, in every attempt.
            VersionNotFoundError: The change was committed, but the version before it is gone.
            MasterReplacedError: There is another master at the path now.
        """
        return in_turn(self._home, self._txn, lambda: self._attempt(plan))

    def _attempt(self, plan: Callable[[Master], Planned | None]) -> Settled:
        committed = self._committed()
        if committed is not None:
            before, after = committed
            return Settled(self._open(before), self._open(after), True)
        base = self._open(self._records.base_for(*self._txn))
        planned = plan(base)
        if planned is None:
            return Settled(base, base, False)
        try:
            newer = base.apply(planned.changes, txn=self._txn, marks=planned.marks)
        except ConflictError:
            self._records.drop(*self._txn)
            raise
        if newer.revision != base.revision + 1:
            raise ConflictError(
                f"another process committed change set {self._txn} at the same time; run it again"
            )
        return Settled(base, newer, False)

    def _committed(self) -> tuple[int, int] | None:
        """The versions before and after the change set, if it was committed."""
        if not self._newest().has_applied(self._txn):
            return None
        base = self._records.find_base(*self._txn)
        # The record may be gone after a long time; then the versions themselves tell, if they still exist.
        versions = [version for version in self._home.versions() if base is None or version >= base]
        manifests = list(self._home.read_manifests(versions).values())
        for before, after in pairwise(manifests):
            if after.has_applied(self._txn) and not before.has_applied(self._txn):
                if after.revision == before.revision + 1:
                    return before.version, after.version
                break
        raise VersionNotFoundError(
            f"change set {self._txn} was already applied to {self._home.path} and cannot be repeated: "
            "the version before it is gone; if it is a new one, for example of a new checkpoint, give txn "
            "another name"
        )

    def _newest(self) -> Manifest:
        pinned = self._home.pin()
        with pinned.lock:
            refuse_other(pinned.manifest, self._master, self._home.path)
            return pinned.manifest

    def _open(self, version: int) -> Master:
        opened = Master.open(self._home.path, version)
        refuse_other(opened, self._master, self._home.path)
        return opened


def checked_txn(txn: tuple[str, int]) -> tuple[str, int]:
    """Validate the name and number of a change set."""
    if isinstance(txn, tuple) and len(txn) == 2:
        name, number = txn
        is_text = isinstance(name, str) and name == name.encode(errors="ignore").decode()
        if is_text and name and type(number) is int and 0 <= number <= MOST_WHOLE:
            return name, number
    raise OptionError(
        f'txn={shown(txn)}: give a name and the number of the micro-batch, such as ("sales", batch_id)'
    )


def in_turn(home: Home, txn: tuple[str, int], attempt: Callable[[], _Result]) -> _Result:
    """Attempt to commit a change set, again while other writers are faster; return the attempt's result."""
    with _lock_for_read_modify_write(home):
        for _ in range(_ATTEMPTS):
            with suppress(ConflictError):
                return attempt()
    raise ConflictError(
        f"other writers of {home.path} were faster than change set {txn} in all of {_ATTEMPTS} attempts; "
        "run it again when there are fewer writers"
    )


@contextmanager
def _lock_for_read_modify_write(home: Home) -> Iterator[None]:
    """Let writers that read before they write take turns.

    This only saves work: a commit fails anyway if another writer was faster. So a writer that has waited for
    a minute goes ahead without the lock.
    """
    path = os.path.join(home.path, "turns.lock")
    home.newest()
    files.make_lock_file(path)
    lock = files.lock_file(path, exclusive=True)
    until = time.monotonic() + _LONGEST_TURN_SECONDS
    while lock is None and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)
        lock = files.lock_file(path, exclusive=True)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()
