"""A spilling join of two inputs that can return all results of the rows so far."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from adjoin.arguments import whole_number
from adjoin.arrow.copying import plain_columns
from adjoin.arrow.encodings import is_plain
from adjoin.errors import AdjoinError, OptionError, SchemaError
from adjoin.kernels.types import Array
from adjoin.streamjoin.base.parts import FlushPolicy, JoinSpec, ReactiveWork, TupleJoin
from adjoin.streamjoin.base.phases import SpillingJoin
from adjoin.streamjoin.base.storage import Storage
from adjoin.streamjoin.complete.arriving import Arriving
from adjoin.streamjoin.complete.cleaning import Cleaning
from adjoin.streamjoin.complete.expiry import Expiry
from adjoin.streamjoin.complete.setting import Setting
from adjoin.streamjoin.complete.time_bound import GREATEST, LEAST

Bounds = tuple[int | None, int | None]


class CompleteJoin(SpillingJoin):
    """A spilling join of two inputs that can return all results of the rows so far.

    It then differs from `SpillingJoin` in this: arriving rows are joined with the tuples of the other input
    in memory and with those in its pages on disk, and only then kept. So there is no reactive phase, and in
    the end all that remains are rows without a partner.

    Args:
        spec: What is joined, and when rows match.
        storage: Holds the tuples, in memory and on disk.
        tuple_join: Joins tuples.
        policy: Chooses the tuples that leave memory.
        reactive: Joins blocks while nothing arrives.
        setting: If all results are to be returned, what arriving rows are joined with.
    """

    def __init__(
        self,
        spec: JoinSpec,
        storage: Storage,
        tuple_join: TupleJoin,
        policy: FlushPolicy,
        reactive: ReactiveWork,
        setting: Setting | None,
    ) -> None:
        super().__init__(spec, storage, tuple_join, policy, reactive)
        self._setting = setting
        self._expiry = None if setting is None else Expiry(setting)
        self._cleaning = None if setting is None else Cleaning(setting.spec, setting.storage)
        self._arriving: Arriving | None = None
        self._expiring: deque[_Expiring] = deque()
        self._keep_from: list[int | None] = [None, None]
        self._logs_matches = False

    # Arriving phase.

    def _piece_rows(self, side: int, batch: pa.RecordBatch) -> int:
        if self._setting is None:
            return super()._piece_rows(side, batch)
        if all(is_plain(field.type) for field in batch.schema):
            return min(batch.num_rows, self._setting.storage.chunk_rows)
        return super()._piece_rows(side, batch)

    def _arrive(self, side: int, piece: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self._setting is None:
            yield from super()._arrive(side, piece)
            return
        rows = piece.num_rows
        numbers = self._setting.storage.moments.many(rows) + np.arange(rows)
        self._arriving = Arriving(self._setting, side, plain_columns(piece), numbers, self._keep_from[side])
        yield from self._finish_arrival()
        yield from self._expire()

    def _resume(self) -> Iterator[pa.RecordBatch]:
        yield from super()._resume()
        yield from self._finish_arrival()
        yield from self._expire()

    def _finish_arrival(self) -> Iterator[pa.RecordBatch]:
        """Return the results of arriving rows, then keep them."""
        if self._arriving is None:
            return
        for batch in self._arriving.results():
            self.counters.results_online += batch.num_rows
            yield batch
        while (part := self._arriving.next_part()) is not None:
            self._place(part)
        for expiring in self._expiring:
            expiring.rows_ahead -= self._arriving.rows
        self._arriving = None
        if self._cleaning is not None and self._cleaning.is_due:
            self._cleaning.run()

    def _is_unfinished(self) -> bool:
        return super()._is_unfinished() or self._arriving is not None or bool(self._expiring)

    def _cleanup_phase(self) -> Iterator[pa.RecordBatch]:
        """If all pairs have been returned, return the rows without a partner that are left."""
        if self._expiry is None:
            yield from super()._cleanup_phase()
        else:
            yield from self._unmatched(self._expiry.all_that_is_left())

    def _unmatched(self, results: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in results:
            self.counters.rows_unmatched += batch.num_rows
            yield batch

    # Times.

    def expire(self, before: Any) -> Iterator[pa.RecordBatch]:
        """Declare that no row of either input with a time before this moment will come any more.

        Rows that can have no partner any more leave memory and disk: left rows with time + after < `before`,
        and right rows with time + the bound `before=` < `before`. A side without such a bound keeps all rows.

        Args:
            before: A datetime or a date, as the time columns are; a number if they are integers.

        Returns:
            If they are results without a partner (`how` is left, right, full or anti): those that leave and
            had no match.
        """
        bound = self._complete("expire").spec.bound
        if bound is None:
            raise OptionError("rows expire by their times; name the time columns with time=")
        return self.expire_rows(*bound.expired_before(bound.moment("before", before)))

    def expire_rows(self, left_before: int | None, right_before: int | None) -> Iterator[pa.RecordBatch]:
        """Remove left rows with a time less than `left_before`, right rows with one less than `right_before`.

        Rows that `keep_only` did not keep leave with them, and rows whose time is null.

        Args:
            left_before: A time in the common unit, the finer one of both time columns; None: no other rows.
            right_before: The same for the right side.

        Returns:
            Those that had no match, if they are results without a partner.
        """
        self._check_has_time("expire_rows")
        bounds = _time("left_before", left_before), _time("right_before", right_before)
        return self._alone(self._expire_after_arrivals(bounds))

    def _expire_after_arrivals(self, bounds: Bounds) -> Iterator[pa.RecordBatch]:
        arriving = 0 if self._arriving is None else self._arriving.rows
        self._expiring.append(_Expiring(self._buffer_rows + arriving, bounds))
        yield from self._arriving_phase()

    def _expire(self) -> Iterator[pa.RecordBatch]:
        """Remove what expires before the next row arrives."""
        if self._expiry is None or self._cleaning is None:
            return
        while self._expiring and self._expiring[0].rows_ahead == 0:
            yield from self._unmatched(self._expiry.run(self._expiring[0].bounds))
            self._expiring.popleft()
            self._cleaning.run()

    def keep_only(self, left_from: int | None, right_from: int | None) -> None:
        """From now on, rows with smaller times are joined when they are pushed, but not kept.

        Those without a match are returned by the next `expire_rows` if they are results without a partner.

        Args:
            left_from: A time in the common unit, the finer one of both time columns; None: all are kept.
            right_from: The same for the right side.
        """
        self._check_settled("keep_only")
        self._check_has_time("keep_only")
        self._keep_from[:] = _time("left_from", left_from), _time("right_from", right_from)

    def _check_has_time(self, method: str) -> None:
        if self._complete(method).spec.bound is None:
            raise OptionError(f"{method} compares times; name the time columns with time=")

    def _check_settled(self, method: str) -> None:
        """Raise an error if a call has not come to its end."""
        self._check_open()
        if self._busy or self._buffer or self._is_unfinished():
            raise AdjoinError(
                f"{method} comes between two calls; exhaust the results of the last one, and if it failed, "
                "make another call that completes it, such as idle(0)"
            )

    def _complete(self, method: str) -> Setting:
        if self._setting is None:
            raise OptionError(f'{method} needs results="complete"')
        return self._setting

    # What another process needs to continue.

    @property
    def next_row_number(self) -> int:
        """The number of the next row: all rows that are pushed are numbered, both inputs together."""
        return self._complete("next_row_number").storage.moments.now

    def skip_row_numbers(self, number: int) -> None:
        """Give the next row this number, if no row has it or a greater one yet."""
        moments = self._complete("skip_row_numbers").storage.moments
        self._check_between_calls()
        moments.now = max(moments.now, whole_number("number", number, 0))

    def newly_matched(self) -> "NewlyMatched":
        """Which rows have had their first match since the last call, where that matters.

        It matters for rows that are results if they have no partner, and for left rows of a semi join. The
        first call returns those that are still kept; from then on, matches are recorded as they happen, also
        those of rows that were never kept.

        Returns:
            For each side, their numbers, ascending.
        """
        setting = self._complete("newly_matched")
        self._check_settled("newly_matched")
        if not self._logs_matches:
            self._begin_log()
        found = NewlyMatched(*(log.numbers() for log in setting.storage.matches))
        for log in setting.storage.matches:
            log.clear()
        return found

    def _begin_log(self) -> None:
        """Find all rows that had a match; from now on, new ones are recorded."""
        setting, expiry = self._setting, self._expiry
        assert setting is not None
        assert expiry is not None
        self._logs_matches = True
        for side, log in enumerate(setting.storage.matches):
            log.start()
            for numbers in expiry.matched(side):
                log.add(numbers)

    def load(self, side: str, batch: pa.RecordBatch, numbers: Array, matched: Array) -> None:
        """Put rows back without joining them; numbering continues after the greatest number.

        They are kept whatever `keep_only` says; `expire_rows` removes them like all others.

        Args:
            side: Their side.
            batch: The rows.
            numbers: The number of each.
            matched: Whether each has had a match.
        """
        self._complete("load")
        self._check_settled("load")
        number = self._checked(side, batch)
        numbers, matched = np.asarray(numbers, np.int64), np.asarray(matched, bool)
        if numbers.shape != (batch.num_rows,) or matched.shape != (batch.num_rows,):
            raise SchemaError(f"load takes a number and a flag for each of the {batch.num_rows} rows")
        for _ in self._alone(self._load(number, batch, numbers, matched)):
            continue

    def _load(
        self, side: int, batch: pa.RecordBatch, numbers: Array, matched: Array
    ) -> Iterator[pa.RecordBatch]:
        setting = self._setting
        assert setting is not None
        yield from self._arriving_phase()
        if len(numbers):
            setting.storage.moments.now = max(setting.storage.moments.now, int(numbers.max()) + 1)
        begin = 0
        while begin < batch.num_rows:
            rest = batch.slice(begin)
            rows = self._piece_rows(side, rest)
            part = slice(begin, begin + rows)
            plain = plain_columns(rest.slice(0, rows))
            self._arriving = Arriving(setting, side, plain, numbers[part], None)
            self._arriving.skip(matched[part])
            yield from self._finish_arrival()
            begin += rows

    # Metrics.

    def metrics(self) -> dict[str, Any]:
        """Counters since the start; see `SpillingJoin.metrics`.

        If all results are returned, in addition: `results_from_disk`, those of `results_online` that were
        found in pages; `rows_kept` in memory and on disk, `rows_expired`; `disk_bytes`, the size of all
        files; `rows_unmatched`, results that are rows without a partner. `pages_read` counts pages then, and
        `results_reactive` and `results_cleanup` are 0.
        """
        found = super().metrics()
        if self._setting is not None:
            storage = self._setting.storage
            found["rows_on_disk"] = sum(pages.rows for pages in storage.pages)
            found["rows_kept"] = found["rows_in_memory"] + found["rows_on_disk"]
            found["disk_bytes"] = storage.disk_bytes
        return found

    # Snapshots.

    def _facts(self) -> dict[str, Any]:
        return {**super()._facts(), "keep_from": self._keep_from, "logs_matches": self._logs_matches}

    def _restore(self, facts: dict[str, Any]) -> None:
        super()._restore(facts)
        self._keep_from = facts["keep_from"]
        self._logs_matches = facts["logs_matches"]


@dataclass
class _Expiring:
    """Rows with smaller times are to be removed as soon as the rows ahead have been joined."""

    rows_ahead: int
    bounds: Bounds


class NewlyMatched(NamedTuple):
    """The numbers of rows that had their first match, by side."""

    left: Array
    right: Array


def _time(name: str, value: Any) -> int | None:
    """A time in the common unit."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise OptionError(f"{name}={value!r} must be an integer in the common unit of the times, or None")
    return max(LEAST, min(int(value), GREATEST))
