"""The latest change of each key: what makes the greatest sequence win, whenever a change arrives.

Next to its rows a master keeps, for each key that was changed under a sequence, the value of the change that
counted, and whether that was a delete. Records lie in a relation of their own, sorted and cut into pages as
rows are; the manifest that commits rows commits their records. Readers never look at them.

Changes are compared with the records of the version that they change, wherever that is done; what is to be
recorded is written to temporary files and merged into the relation by whoever commits.
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
    """The relation of one version, which may have none yet."""

    relation: Manifest
    index: PageIndex

    @classmethod
    def of(cls, home: Home, manifest: Manifest, sequence: pa.DataType) -> "LatestChanges":
        """What the version has recorded of sequence values of this type."""
        if manifest.latest is None:
            return cls(_empty_relation(manifest, sequence), PageIndex.empty())
        relation = manifest.latest.relation
        return cls(relation, load_index(home, relation))

    def are_newer(
        self, records: pa.RecordBatch, keys: NDArray[np.int64], chunk_bytes: int
    ) -> NDArray[np.bool_]:
        """For each of some records, in the order of encoded keys, whether no greater value is recorded."""
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
    """Keys by their places, so that they may have other names later."""
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
    """Drops changes that come too late, and writes down what is to be recorded of the others.

    Args:
        home: The master's directory.
        latest: What is recorded.
        at: When the changes are committed.
        memory_bytes: What may be held at once.
        marker: Begins the name of the temporary file, see `files.new_name`.
    """

    def __init__(
        self, home: Home, latest: LatestChanges, at: datetime, memory_bytes: int, marker: str = ""
    ) -> None:
        self._latest = latest
        self._at = at
        self._chunk_bytes = slice_bytes(memory_bytes)
        self._spool = RecordSpool(home.temporary(".run", marker))

    def add(self, part: Resolved) -> Resolved:
        """Take the next changes, in the order of keys; return those that count."""
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
        """What is to be recorded, in the order of keys, if anything; whoever has it discards it."""
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
    """New pages of the relation, with records that are given in the order of keys."""
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
    """Where to look for expired tombstones while these records are merged, and the key up to which that is.

    Every commit looks at more pages than its records take, from where the last one has stopped: so expired
    tombstones never outnumber the other records for long, and no commit has much to do.
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
    """Tombstones of changes committed before this moment may go; None: none may."""
    if tombstone_seconds is None:
        return None
    return now - min(timedelta(seconds=tombstone_seconds), now - _FIRST)


def _expired(before: datetime) -> Callable[[pa.RecordBatch], NDArray[np.bool_]]:
    limit = pa.scalar(before, _AT_TYPE)

    def goes(records: pa.RecordBatch) -> NDArray[np.bool_]:
        old = pc.less(records.column(_AT_COLUMN), limit)
        return np.asarray(pc.and_(records.column(_DELETED_COLUMN), old).to_numpy(zero_copy_only=False))

    return goes
