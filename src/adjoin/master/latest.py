"""The latest change of each key, so that the greatest sequence wins whenever a change arrives.

In addition to its rows, a master keeps, for each key that was changed with a sequence, the sequence value of
the change that took effect, and whether it was a delete. These records form a relation of their own, sorted
and cut into pages like rows; the manifest that commits rows also commits their records. Readers ignore them.

Changes are compared with the records of the version that they change, in the process that rewrites the pages.
New records are written to temporary files, and the process that commits merges them into the relation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from adjoin.keys.codec import KeyCodec, encoded_values
from adjoin.master.changes import Resolved, matches
from adjoin.master.data_file import read_pages
from adjoin.master.index import PageIndex
from adjoin.master.manifest import IndexFile, Manifest, first_columns, new_id, stored_schema
from adjoin.master.page import roomy_page_bytes
from adjoin.master.rewriter import Rewriter, Rewritten, Sweep, page_slices, pages_with, slice_bytes
from adjoin.master.sequence import SEQUENCE_COLUMN
from adjoin.master.spool import RecordSpool, SpooledRecords
from adjoin.master.verify import load_index
from adjoin.master.versions import Home

_DELETED_COLUMN = "deleted"
_AT_COLUMN = "at"
_AT_TYPE = pa.timestamp("us", "UTC")
_LEAST_SWEPT_PAGES = 16
NOT_SWEPT = int(np.iinfo(np.int64).min)
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class LatestChanges:
    """The records of one version, empty if it has none yet."""

    relation: Manifest
    index: PageIndex

    @classmethod
    def of(cls, home: Home, manifest: Manifest, sequence: pa.DataType) -> "LatestChanges":
        """The records of the version, with sequence values of this type."""
        if manifest.latest is None:
            return cls(_empty_relation(manifest, sequence), PageIndex.empty())
        relation = manifest.latest.relation
        return cls(relation, load_index(home, relation))

    def are_newer(
        self, records: pa.RecordBatch, keys: NDArray[np.int64], chunk_bytes: int
    ) -> NDArray[np.bool_]:
        """For each of these records, sorted by encoded key, whether no greater value is recorded yet."""
        newer = np.ones(len(keys), np.bool_)
        for pages in page_slices(self.index, pages_with(self.index, keys), chunk_bytes):
            known = read_pages(self.relation.stored, self.relation.files, self.index, pages)
            known_keys = encoded_values(known.column(self.relation.key_column))
            low = int(np.searchsorted(keys, known_keys[0], "left"))
            high = int(np.searchsorted(keys, known_keys[-1], "right"))
            mine = records.slice(low, high - low)
            place = matches(self.relation.codec, known_keys, known, mine, keys[low:high])
            met = np.flatnonzero(place >= 0)
            theirs = known.column(SEQUENCE_COLUMN).take(pa.array(met)).combine_chunks()
            older = pc.less(mine.column(SEQUENCE_COLUMN).take(pa.array(place[met])), theirs)
            newer[low + place[met]] = ~older.to_numpy(zero_copy_only=False)
        return newer


def _empty_relation(manifest: Manifest, sequence: pa.DataType) -> Manifest:
    """A relation without records. Key columns are named by position, because they can be renamed later."""
    names = [f"key_{place}" for place in range(len(manifest.key))]
    types = {
        **dict(zip(names, manifest.codec.types, strict=True)),
        SEQUENCE_COLUMN: sequence,
        _DELETED_COLUMN: pa.bool_(),
        _AT_COLUMN: _AT_TYPE,
    }
    schema = pa.schema([pa.field(name, type_, nullable=False) for name, type_ in types.items()])
    codec = KeyCodec.of(schema, names, hash_bits=manifest.codec.hash_bits)
    return Manifest(
        id=new_id(),
        version=1,
        revision=1,
        created=manifest.created,
        key=codec.columns,
        codec=codec,
        schema=schema,
        **first_columns(schema, codec),
        page_bytes=roomy_page_bytes(stored_schema(schema, codec), manifest.page_bytes),
        fill=manifest.fill,
        filter_bits=0,
        rows=0,
        pages=0,
        bytes=0,
        files=(),
        index=IndexFile("", 0),
        filter=None,
    )


class Recorder:
    """Drops changes that arrive too late, and writes records of the others to a temporary file.

    Args:
        home: The master's directory.
        latest: The existing records.
        at: The time of the commit.
        memory_bytes: The memory for existing records.
        marker: Prefix of the name of the temporary file; see `files.new_name`.
    """

    def __init__(
        self, home: Home, latest: LatestChanges, at: datetime, memory_bytes: int, marker: str = ""
    ) -> None:
        self._latest = latest
        self._at = at
        self._chunk_bytes = slice_bytes(memory_bytes)
        self._spool = RecordSpool(home.temporary(".run", marker))

    def add(self, part: Resolved) -> Resolved:
        """Take the next changes, in key order; returns those that take effect."""
        records = self._records_of(part)
        newer = self._latest.are_newer(records, part.cleared_keys, self._chunk_bytes)
        if newer.any():
            self._spool.add(records.filter(pa.array(newer)))
        return part if newer.all() else part.only(newer)

    def _records_of(self, part: Resolved) -> pa.RecordBatch:
        relation = self._latest.relation
        encoded = [] if relation.codec.kind == "identity" else [pa.array(part.cleared_keys)]
        keys = [
            column.storage if isinstance(column, pa.ExtensionArray) else column
            for column in (part.cleared.column(name) for name in part.cleared.schema.names)
        ]
        at = pa.repeat(pa.scalar(self._at, _AT_TYPE), len(part.cleared_keys))
        columns = [*encoded, *keys, part.sequence, pa.array(part.is_delete), at]
        return pa.record_batch(columns, schema=relation.stored_schema)

    def finish(self) -> SpooledRecords | None:
        """The new records in key order, if there are any; the caller discards them."""
        return self._spool.finish(self._latest.relation.schema.field(SEQUENCE_COLUMN).type)

    def close(self) -> None:
        """Remove what was written, unless it is finished."""
        self._spool.close()


def merge_records(
    home: Home,
    latest: LatestChanges,
    spooled: Sequence[SpooledRecords],
    memory_bytes: int,
    sweep: Sweep | None,
) -> Rewritten:
    """Write new pages of the relation, with records that are given in key order."""
    relation = latest.relation
    rewriter = Rewriter(home, relation, latest.index, memory_bytes, sweep=sweep)
    try:
        for part in spooled:
            for records in part.batches(relation.stored_schema):
                keys = encoded_values(records.column(relation.key_column))
                rewriter.add(Resolved(records, keys, records, keys, int(keys[-1])))
        return rewriter.finish()
    finally:
        rewriter.close()


def next_sweep(
    latest: LatestChanges, after: int, spooled: Sequence[SpooledRecords], expired_before: datetime | None
) -> tuple[Sweep | None, int]:
    """The pages to search for expired tombstones while these records are merged, and the last key searched.

    Every commit searches more pages than its records take, starting where the previous one stopped: so
    expired tombstones never outnumber other records for long, and no commit has much to do.
    """
    if expired_before is None:
        return None, after
    index, page_bytes = latest.index, latest.relation.page_bytes
    count = _LEAST_SWEPT_PAGES + 2 * sum(part.bytes for part in spooled) // page_bytes
    start = int(np.searchsorted(index.last, after, "right"))
    pages = np.arange(start, min(start + count, len(index)))
    swept = int(index.last[pages[-1]]) if start + count < len(index) else NOT_SWEPT
    return Sweep(pages, _expired(expired_before)), swept


def expired_before(now: datetime, tombstone_seconds: float | None) -> datetime | None:
    """The time before which tombstones have expired; None if they never do."""
    if tombstone_seconds is None:
        return None
    return now - min(timedelta(seconds=tombstone_seconds), now - _FIRST)


def _expired(before: datetime) -> Callable[[pa.RecordBatch], NDArray[np.bool_]]:
    limit = pa.scalar(before, _AT_TYPE)

    def goes(records: pa.RecordBatch) -> NDArray[np.bool_]:
        old = pc.less(records.column(_AT_COLUMN), limit)
        return np.asarray(pc.and_(records.column(_DELETED_COLUMN), old).to_numpy(zero_copy_only=False))

    return goes
