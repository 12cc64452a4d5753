"""Building the first version of a master, in bounded memory."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from adjoin import arguments
from adjoin.errors import ConflictError, MasterExistsError, NullKeyError, OptionError, SchemaError
from adjoin.keys.codec import KEY_COLUMN, KeyCodec, encoded_values, valid_rows
from adjoin.master import files
from adjoin.master.changes import OPERATION_COLUMN
from adjoin.master.data_file import FILE_BYTES, DataFile, PageWriter, checksum_of
from adjoin.master.filter import KeyFilter
from adjoin.master.index import PageIndex
from adjoin.master.manifest import (
    IndexFile,
    Manifest,
    first_columns,
    key_column,
    new_id,
    now,
    stored_schema,
)
from adjoin.master.page import PageCutter, roomy_page_bytes, seal
from adjoin.master.progress import Progress
from adjoin.master.sort import ExternalSorter
from adjoin.master.source import open_source
from adjoin.master.spool import KeySpool, SpooledKeys, filter_of
from adjoin.master.vacuum import orphans
from adjoin.master.versions import Home
from adjoin.memory.arena import BLOCK_BYTES

_CUT_BYTES = 4 << 20
_LARGEST_PAGE_BYTES = 256 << 20


@dataclass(frozen=True)
class BuildOptions:
    """How a master is built; see `Master.build`."""

    page_bytes: int = 8192
    fill: float = 0.8
    filter_bits: int = 0
    memory_bytes: int = 256 << 20
    null_keys: str = "error"
    hash_bits: int = 64
    file_bytes: int = FILE_BYTES

    def __post_init__(self) -> None:
        pages_fit = _is_whole(self.page_bytes, BLOCK_BYTES, _LARGEST_PAGE_BYTES)
        if not pages_fit or self.page_bytes % BLOCK_BYTES:
            raise OptionError(
                f"page_bytes={self.page_bytes!r}: give a multiple of {BLOCK_BYTES} that is "
                f"at most {_LARGEST_PAGE_BYTES}"
            )
        if not isinstance(self.fill, int | float) or not 0 < self.fill <= 1:
            raise OptionError(f"fill={self.fill!r}: give a number above 0 and at most 1")
        if not _is_whole(self.filter_bits, 0, 64):
            raise OptionError(
                f"filter_bits={self.filter_bits!r}: give a number of bits per key from 0 (no filter) to 64"
            )
        if not isinstance(self.null_keys, str) or self.null_keys not in {"error", "drop"}:
            raise OptionError(f'null_keys={self.null_keys!r}: give "error" or "drop"')


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and least <= value <= most


@dataclass(frozen=True)
class Layout:
    """How the rows of a new master are stored; fixed before the first row is read."""

    schema: pa.Schema
    codec: KeyCodec
    page_bytes: int
    options: BuildOptions

    @classmethod
    def of(cls, schema: pa.Schema, key: str | Sequence[str], options: BuildOptions) -> "Layout":
        codec = KeyCodec.of(schema, _check_columns(schema, key), hash_bits=options.hash_bits)
        stored = stored_schema(schema, codec)
        page_bytes = roomy_page_bytes(stored, options.page_bytes)
        PageCutter(stored, page_bytes, options.fill).check_room()
        return cls(schema, codec, page_bytes, options)

    @property
    def stored_schema(self) -> pa.Schema:
        return stored_schema(self.schema, self.codec)

    @property
    def key_column(self) -> str:
        return key_column(self.codec)


@dataclass(frozen=True)
class Written:
    """Rows that were written as pages, which belong to no version yet.

    Attributes:
        index: The index of the pages; files are numbered from 0.
        files: The data files.
        keys: The keys, if there is to be a filter.
    """

    index: PageIndex
    files: list[DataFile]
    keys: SpooledKeys | None


def build(
    source: Any, key: str | Sequence[str], home: Home, options: BuildOptions, progress: Progress
) -> None:
    """Sort, cut and write the rows of the source, and commit them as version 1."""
    rows = open_source(source, max(BLOCK_BYTES, options.memory_bytes // 16))
    layout = Layout.of(rows.schema, key, options)
    with new_master(home), ExitStack() as stack:
        stack.callback(progress.close)
        builder = PageBuilder(home, layout, progress)
        stack.callback(builder.close)
        read_rows = null_rows = 0
        for batch in rows.batches:
            read_rows += batch.num_rows
            null_rows += builder.add(batch)
            progress.update("sorting", read_rows, rows.rows)
        refuse_null_keys(layout, null_rows, read_rows)
        commit_first(home, layout, [builder.finish()])


@contextmanager
def new_master(home: Home) -> Iterator[None]:
    """Make the directories, and lock out `vacuum` while the first version is written."""
    _refuse_existing(home)
    home.create()
    with _sweep_and_lock(home):
        yield


def refuse_null_keys(layout: Layout, null_rows: int, rows: int) -> None:
    if null_rows and layout.options.null_keys == "error":
        raise NullKeyError(
            f"{null_rows} of {rows} rows have a null in the key {list(layout.codec.columns)}; "
            'remove these rows, or build with null_keys="drop"'
        )


def commit_first(home: Home, layout: Layout, parts: Sequence[Written]) -> None:
    """Commit parts, given in key order, as version 1; files that are not committed are removed."""
    created = [file.path for part in parts for file in part.files]
    spooled = [part.keys for part in parts if part.keys is not None]
    try:
        home.commit(_first_manifest(home, layout, parts, spooled, created))
    except ConflictError:
        _refuse_existing(home)
        raise
    finally:
        for keys in spooled:
            keys.discard()
        home.discard_unless_committed(1, created)


def _first_manifest(
    home: Home, layout: Layout, parts: Sequence[Written], spooled: Sequence[SpooledKeys], created: list[str]
) -> Manifest:
    index = concat_index([(part.index, len(part.files)) for part in parts])
    index.check_invariants()
    bits = layout.options.filter_bits
    key_filter = filter_of(spooled, bits) if bits else None
    index_file, filter_file = write_index(home, index, key_filter, created)
    empty = Manifest(
        id=new_id(),
        version=1,
        revision=1,
        created=now(),
        key=layout.codec.columns,
        codec=layout.codec,
        schema=layout.schema,
        **first_columns(layout.schema, layout.codec),
        page_bytes=layout.page_bytes,
        fill=layout.options.fill,
        filter_bits=bits,
        rows=0,
        pages=0,
        bytes=0,
        files=(),
        index=index_file,
        filter=filter_file,
    )
    data_files = tuple(file for part in parts for file in part.files)
    return empty.with_pages(index, data_files, index_file, filter_file)


def concat_index(parts: Sequence[tuple[PageIndex, int]]) -> PageIndex:
    """Concatenate indexes, each given with its number of files, and renumber the files."""
    index = PageIndex.concat([part for part, _ in parts])
    start = files_before = 0
    for part, file_count in parts:
        index.file[start : start + len(part)] += files_before
        start += len(part)
        files_before += file_count
    return index


def write_index(
    home: Home, index: PageIndex, key_filter: KeyFilter | None, created: list[str]
) -> tuple[IndexFile, IndexFile | None]:
    """Write index and filter files durably, and add their paths to `created`."""
    data = index.to_bytes()
    index_file = IndexFile(home.write_index_file(data, created), checksum_of(data))
    filter_file = None
    if key_filter is not None:
        data = key_filter.to_bytes()
        filter_file = IndexFile(home.write_index_file(data, created), checksum_of(data), key_filter.capacity)
    files.sync_dir(home.index_dir)
    return index_file, filter_file


def _check_columns(schema: pa.Schema, key: str | Sequence[str]) -> list[str]:
    columns = [key] if isinstance(key, str) else list(arguments.names("key", key))
    if not columns or len(set(columns)) < len(columns):
        raise OptionError(f"key={key!r}: give a column name, or a list of different ones")
    missing = [name for name in columns if name not in schema.names]
    if missing:
        raise SchemaError(f"there are no key columns {missing} among the columns {schema.names}")
    for name in (KEY_COLUMN, OPERATION_COLUMN):
        if name in schema.names:
            raise SchemaError(f"adjoin reserves the column name {name!r}; rename the column")
    return columns


def _refuse_existing(home: Home) -> None:
    if home.versions():
        raise MasterExistsError(
            f"there is already a master at {home.path}; open it with Master.open and change it with apply, "
            "or build at another path"
        )


def _sweep_and_lock(home: Home) -> files.Lock:
    """Remove what a crashed build has left, then share the lock with other writers."""
    lock = files.lock_file(home.lock_path, exclusive=True)
    if lock is None:
        return home.lock_writers()
    try:
        if not home.versions():
            for path in orphans(home, set()):
                files.unlink(path)
        lock.share()
    except BaseException:
        lock.release()
        raise
    return lock


class PageBuilder:
    """Sorts rows and writes them as pages.

    Args:
        home: The directory of the master.
        layout: How to store the rows.
        progress: Shows the number of rows written.
        marker: Prefix of the names of all files; see `files.new_name`.
    """

    def __init__(self, home: Home, layout: Layout, progress: Progress, marker: str = "") -> None:
        self._layout = layout
        self._options = layout.options
        self._progress = progress
        self._schema = layout.stored_schema
        self._sorter = ExternalSorter(
            lambda: home.temporary(".run", marker),
            self._schema,
            layout.key_column,
            self._options.memory_bytes,
        )
        self._writer = PageWriter(home.data_dir, self._schema, self._options.file_bytes, marker)
        self._spool = KeySpool(home.temporary(".keys", marker)) if self._options.filter_bits else None
        self._cutter = PageCutter(self._schema, layout.page_bytes, self._options.fill)
        self._index: list[PageIndex] = []
        self._written_rows = 0
        self._null_rows = 0
        self._finished = False

    def add(self, batch: pa.RecordBatch) -> int:
        """Add rows, in any order, in the layout's schema; returns how many are left out for null keys."""
        valid = valid_rows([batch.column(name) for name in self._layout.codec.columns])
        kept = batch if valid is None else batch.filter(pa.array(valid))
        self._null_rows += batch.num_rows - kept.num_rows
        will_fail = self._null_rows > 0 and self._options.null_keys == "error"
        if kept.num_rows and not will_fail:
            self._sorter.add(self._with_key(kept))
        return int(batch.num_rows - kept.num_rows)

    def finish(self) -> Written:
        """Write all rows; the caller commits or discards the result."""
        self._write(self._sorter.sorted())
        data_files = self._writer.finish()
        keys = self._spool.finish() if self._spool else None
        self._finished = True
        return Written(PageIndex.concat(self._index), data_files, keys)

    def close(self) -> None:
        """Remove temporary files, and unless they are finished, the pages."""
        self._sorter.close()
        if not self._finished:
            self._writer.discard()
        if self._spool:
            self._spool.close()

    def _with_key(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch in the stored schema: the encoded key first, unless the key column is its own."""
        codec = self._layout.codec
        if codec.kind == "identity":
            return pa.record_batch(batch.columns, schema=self._schema)
        keys, _ = codec.encode([batch.column(name) for name in codec.columns])
        return pa.record_batch([pa.array(keys), *batch.columns], schema=self._schema)

    def _write(self, batches: Iterator[pa.RecordBatch]) -> None:
        limit_bytes = max(2 * self._layout.page_bytes, min(_CUT_BYTES, self._options.memory_bytes // 32))
        pending: list[pa.RecordBatch] = []
        pending_bytes = 0
        for batch in batches:
            pending.append(batch)
            pending_bytes += batch.nbytes
            if pending_bytes >= limit_bytes:
                pending = [self._write_pages(pa.concat_batches(pending), more=True)]
                pending_bytes = pending[0].nbytes
        if pending:
            self._write_pages(pa.concat_batches(pending), more=False)

    def _write_pages(self, rows: pa.RecordBatch, *, more: bool) -> pa.RecordBatch:
        """Write all full pages; returns the remaining rows."""
        cuts = self._cutter.cut(rows, more=more)
        if len(cuts):
            keys = encoded_values(rows.column(self._layout.key_column))
            self._index.append(self._writer.write(keys, cuts.bounds, seal(rows, cuts)))
            if self._spool:
                self._spool.add(keys[: cuts.rows])
            self._written_rows += cuts.rows
            self._progress.update("writing", self._written_rows, self._sorter.rows)
        return rows.slice(cuts.rows)
