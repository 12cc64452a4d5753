"""A disk that fails now and then, and a caller that continues."""

import itertools
import os
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from adjoin import StorageError
from adjoin.streamjoin.base.phases import SpillingJoin


class Refusals:
    """For a while every ninth call to the disk fails; all results are collected nevertheless.

    Attributes:
        found: The results.
        complaints: The messages of the failures.
    """

    def __init__(self, monkeypatch: Any, call: str, number: int, calls: int) -> None:
        self.found: list[pa.RecordBatch] = []
        self.complaints: list[str] = []
        counter, real = itertools.count(), getattr(os, call)

        def refused_now_and_then(*arguments: Any) -> int:
            now = next(counter)
            if now < calls and now % 9 == 8:
                raise OSError(number, os.strerror(number))
            return int(real(*arguments))

        monkeypatch.setattr(f"adjoin.streamjoin.disk.spill_file.os.{call}", refused_now_and_then)

    def go_on(self, join: SpillingJoin, work: Iterable[pa.RecordBatch]) -> None:
        """Take results; after every failure, continue what was interrupted."""
        while not self._has_ended(work):
            join.check_invariants()
            work = join.idle(0)

    def finish(self, join: SpillingJoin) -> None:
        """Try until it is done."""
        while not self._has_ended(join.finish()):
            continue

    def _has_ended(self, work: Iterable[pa.RecordBatch]) -> bool:
        try:
            self.found.extend(iter(work))
        except StorageError as error:
            self.complaints.append(str(error))
            return False
        return True
