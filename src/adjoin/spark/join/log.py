"""The durable state of a bucket: a log of the rows that still matter, from which its operator can be rebuilt.

The log is in Spark's state store, in few large values:

    meta                the token of the last micro-batch, its watermark, and a list of the log's entries
    log[number, part]   a part of an entry: packs of rows as they arrived, or numbers of matched rows

Entries are removed whole once all their rows have expired, and rewritten once most of them have.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from adjoin.errors import CorruptionError, OptionError
from adjoin.kernels.types import Array

FORMAT = 1
MATCHED = (2, 3)
"""In place of a side: numbers of rows of the left, of the right, that have found a partner."""
_MOST_MATCHED = 64
_PART_BYTES = 256 << 10
"""Values are stored in parts of this size: Java copies larger ones several times slower."""


class Values(Protocol):
    """The parts of values, in the state store."""

    def get(self, number: int, part: int) -> bytes:
        """A part of the value with this number."""

    def put(self, number: int, part: int, value: bytes) -> None:
        """Set a part of a value."""

    def remove(self, number: int, part: int) -> None:
        """Remove a part of a value."""


@dataclass(frozen=True)
class Entry:
    """What the log knows about one of its values.

    Attributes:
        number: Its number in the state store.
        kind: The side of its rows, or one of `MATCHED`.
        first: The number of its first row; of matched rows, the greatest number.
        rows: How many numbers its rows have, from the first on.
        bytes: Its size.
        sizes: The bytes of each of its packs; if it has more bytes, they are the numbers of its rows.
        late: Rows with this time or an earlier one were dropped as late; None: none.

        median: The median of the times of its rows; None if they never expire.
        latest: The greatest of these times.
    """

    number: int
    kind: int
    first: int
    rows: int
    bytes: int
    sizes: tuple[int, ...] = ()
    late: int | None = None
    median: int | None = None
    latest: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Its fields."""
        return asdict(self)

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> "Entry":
        """An entry from its fields."""
        return cls(**{**saved, "sizes": tuple(saved["sizes"])})


@dataclass
class Meta:
    """What a bucket remembers from one micro-batch to the next, besides its rows.

    Attributes:
        options: The join in words, by argument; another join cannot continue.
        token: Identifies the state after the last micro-batch; every attempt makes a new one.
        watermark: The watermark of the last micro-batch, in milliseconds; 0 before there is one.
        next_row: The number of the next row.
        next_entry: The number of the next entry.
        entries: The entries of the log, by number.
    """

    options: dict[str, Any]
    token: str = ""
    watermark: int = 0
    next_row: int = 0
    next_entry: int = 0
    entries: list[Entry] = field(default_factory=list)

    def to_bytes(self) -> bytes:
        """The value for the state store."""
        columns = {name: [getattr(entry, name) for entry in self.entries] for name in _FIELDS}
        facts = {**asdict(replace(self, entries=[])), "format": FORMAT, "entries": columns}
        return json.dumps(facts).encode()

    @classmethod
    def from_bytes(cls, value: bytes, options: dict[str, Any]) -> "Meta":
        """The value from the state store.

        Raises:
            OptionError: It is of another join, or of another version of adjoin.
        """
        try:
            saved = json.loads(value)
            version = saved.pop("format")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptionError(f"the checkpoint's state of the join is damaged ({error})") from error
        if version != FORMAT:
            raise OptionError(
                f"the checkpoint has the format {version} of adjoin's joins, this version reads {FORMAT}; "
                "continue with the version that wrote it, or start with a new checkpoint"
            )
        columns = saved.pop("entries")
        rows = zip(*(columns[name] for name in _FIELDS), strict=True)
        entries = [Entry.from_json(dict(zip(_FIELDS, values, strict=True))) for values in rows]
        meta = cls(**saved, entries=entries)
        _check_same(meta.options, options)
        return meta


_FIELDS = tuple(Entry.__dataclass_fields__)


def _check_same(saved: dict[str, Any], given: dict[str, Any]) -> None:
    for name in {**saved, **given}:
        if saved.get(name) != given.get(name):
            raise OptionError(
                f"this checkpoint was made by a join with {name}={_shown(saved.get(name))}, now it has "
                f"{name}={_shown(given.get(name))}; start the query as it was, or with a new checkpoint"
            )


def _shown(value: Any) -> str:
    return f"{value!r:.200}"


class Log:
    """The entries of a bucket.

    Args:
        meta: What the bucket remembers; its list of entries is kept up to date.
        values: The state store.
    """

    def __init__(self, meta: Meta, values: Values) -> None:
        self.meta = meta
        self._values = values

    @property
    def size(self) -> int:
        """Its bytes."""
        return sum(entry.bytes for entry in self.meta.entries)

    def add(self, value: bytes, **facts: Any) -> None:
        """Append an entry."""
        entry = Entry(number=self.meta.next_entry, bytes=len(value), **facts)
        self._put(entry, value)
        self.meta.next_entry += 1
        self.meta.entries.append(entry)

    def replace(self, entry: Entry, value: bytes, **facts: Any) -> None:
        """Rewrite an entry, which keeps its number."""
        at = self.meta.entries.index(entry)
        self._remove_values(entry)
        self.meta.entries[at] = replace(entry, bytes=len(value), **facts)
        self._put(self.meta.entries[at], value)

    def expire(self, before: Sequence[int | None]) -> None:
        """Remove entries whose rows have all expired.

        Args:
            before: For each side, the time before which rows have expired; None: none has.
        """
        self._remove([entry for entry in self._with_rows() if _is_gone(entry, before)])
        least = min((entry.first for entry in self._with_rows()), default=self.meta.next_row)
        self._remove([entry for entry in self._of_matched() if entry.first < least])
        if len(self._of_matched()) > _MOST_MATCHED:
            self._fold_matched()

    def _fold_matched(self) -> None:
        """Rewrite the numbers of matched rows as one entry for each side, without rows that have left."""
        live = sorted((entry.first, entry.first + entry.rows) for entry in self._with_rows())
        begins, ends = np.array(live, np.int64).reshape(-1, 2).T
        found = self.matched()
        self._remove(self._of_matched())
        for kind, numbers in zip(MATCHED, found, strict=True):
            at = np.searchsorted(begins, numbers, "right") - 1
            self.add_matched(kind, numbers[(at >= 0) & (numbers < ends[at])] if len(ends) else numbers[:0])

    def add_matched(self, kind: int, numbers: Array) -> None:
        """Append the numbers of rows that have found a partner, ascending."""
        if len(numbers):
            self.add(numbers.tobytes(), kind=kind, first=int(numbers[-1]), rows=len(numbers))

    def mostly_expired(self, before: Sequence[int | None]) -> Iterator[Entry]:
        """Entries of which more than half of the rows have expired."""
        for entry in self._with_rows():
            limit = before[entry.kind]
            if limit is not None and entry.median is not None and entry.median < limit:
                yield entry

    def _with_rows(self) -> list[Entry]:
        return [entry for entry in self.meta.entries if entry.kind not in MATCHED]

    def _of_matched(self) -> list[Entry]:
        return [entry for entry in self.meta.entries if entry.kind in MATCHED]

    def _remove(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._remove_values(entry)
        gone = {entry.number for entry in entries}
        self.meta.entries = [entry for entry in self.meta.entries if entry.number not in gone]

    def _put(self, entry: Entry, value: bytes) -> None:
        for part in _parts(entry):
            self._values.put(entry.number, part, value[part * _PART_BYTES : (part + 1) * _PART_BYTES])

    def _remove_values(self, entry: Entry) -> None:
        for part in _parts(entry):
            self._values.remove(entry.number, part)

    def value(self, entry: Entry) -> bytes:
        """The value of an entry."""
        return b"".join(self._values.get(entry.number, part) for part in _parts(entry))

    def rows(self) -> Iterator[tuple[Entry, bytes]]:
        """The entries with rows, in their order."""
        for entry in self._with_rows():
            yield entry, self.value(entry)

    def matched(self) -> list[Array]:
        """For each side, the numbers of rows that have found a partner, ascending."""
        found: list[list[Array]] = [[], []]
        for entry in self._of_matched():
            numbers = np.frombuffer(self.value(entry), np.int64)
            found[MATCHED.index(entry.kind)].append(numbers)
        return [np.unique(np.concatenate([np.empty(0, np.int64), *some])) for some in found]


def _parts(entry: Entry) -> range:
    """The parts in which the value of an entry is stored."""
    return range(-(-entry.bytes // _PART_BYTES))


def _is_gone(entry: Entry, before: Sequence[int | None]) -> bool:
    limit = before[entry.kind]
    return limit is not None and entry.latest is not None and entry.latest < limit
