"""Change sets that depend on what the master holds: looked up, applied, and the same when repeated."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

import pyarrow as pa

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
    """What is to change, and the marks that change with it."""

    changes: pa.Table
    marks: Mapping[str, int] = field(default_factory=dict)


def upserts(master: Master, known: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    """Changes that put in rows of which these columns are known, the others being null."""
    rows = len(next(iter(known.values())))
    missing = [field for field in master.schema if field.name not in known]
    nulls = {field.name: pa.nulls(rows, field.type) for field in missing}
    return pa.table({OPERATION_COLUMN: pa.array(["upsert"] * rows, pa.string()), **known, **nulls})


@dataclass(frozen=True)
class Settled:
    """The versions before and after a change set; the same one twice if there was nothing to change.

    Attributes:
        before: The version that the change was planned on.
        after: The version that holds it.
        is_repetition: Whether an earlier run had committed it.
    """

    before: Master
    after: Master
    is_repetition: bool


class NumberedChange:
    """A change set with a name and a number, planned by looking at the version that it changes.

    How it works: the version is recorded before anybody looks at it. The change is then committed as the
    revision that follows, or not at all, so that a repetition finds the versions before and after; versions
    between them have the same rows in other places. If another writer is faster, nothing has come of the
    record: it gives way to one of the newest version, and the change is planned anew.

    Args:
        master: The master, in any version.
        txn: Name and number.
    """

    def __init__(self, master: Master, txn: tuple[str, int]) -> None:
        self._master = master.id
        self._home = Home(master.path)
        self._records = BaseRecords(self._home, master.id)
        self._txn = checked_txn(txn)

    def settle(self, plan: Callable[[Master], Planned | None]) -> Settled:
        """Plan and commit the change unless that was done before.

        Args:
            plan: Looks at a version and says what is to change, None if nothing is.

        Raises:
            ConflictError: Other writers were faster, time and again.
            VersionNotFoundError: It was committed, and the version before is gone.
            MasterReplacedError: The path has another master now.
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
            raise ConflictError(f"another process has committed change set {self._txn} meanwhile")
        return Settled(base, newer, False)

    def _committed(self) -> tuple[int, int] | None:
        """The versions before and after the change set, if it was committed."""
        if not self._newest().has_applied(self._txn):
            return None
        base = self._records.find_base(*self._txn)
        # The record can be missing after a long time; then the versions themselves tell, if they are there.
        versions = [version for version in self._home.versions() if base is None or version >= base]
        manifests = list(self._home.read_manifests(versions).values())
        for before, after in pairwise(manifests):
            if after.has_applied(self._txn) and not before.has_applied(self._txn):
                if after.revision == before.revision + 1:
                    return before.version, after.version
                break
        raise VersionNotFoundError(
            f"change set {self._txn} is part of {self._home.path}, and the version before it is gone, so it "
            "cannot be repeated; if it is a new one, of a new checkpoint perhaps, give txn another name"
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
    """The name and number of a change set, or an OptionError."""
    if isinstance(txn, tuple) and len(txn) == 2:
        name, number = txn
        is_text = isinstance(name, str) and name == name.encode(errors="ignore").decode()
        if is_text and name and type(number) is int and number >= 0:
            return name, number
    raise OptionError(f'txn={txn!r}: give a name and the number of the micro-batch, as ("sales", batch_id)')


def in_turn(home: Home, txn: tuple[str, int], attempt: Callable[[], _Result]) -> _Result:
    """Try to commit a change set, again as long as other writers are faster; what the attempt returns."""
    with _taking_turns(home):
        for _ in range(_ATTEMPTS):
            with suppress(ConflictError):
                return attempt()
    raise ConflictError(
        f"{_ATTEMPTS} times another writer of {home.path} was faster than change set {txn}; "
        "run it again when fewer write"
    )


@contextmanager
def _taking_turns(home: Home) -> Iterator[None]:
    """Let writers that look before they write do so one after the other.

    That only saves them work: a commit fails if another writer was faster, whether he waited or not. So
    whoever has waited for a minute goes ahead.
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
