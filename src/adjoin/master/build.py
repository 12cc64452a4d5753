"""Building the first version of a master, in bounded memory."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from adjoin.errors import ConflictError, MasterExistsError, NullKeyError, OptionError, SchemaError
from adjoin.master import files
from adjoin.master.changes import OPERATION_COLUMN
from adjoin.master.datafile import FILE_BYTES, PageWriter, checksum_of
from adjoin.master.filter import KeyFilter, KeySpool
from adjoin.master.index import PageIndex
from adjoin.master.keys import KEY_COLUMN, KeyCodec, encoded_values, valid_rows
from adjoin.master.manifest import IndexFile, Manifest, key_column, now, stored_schema
from adjoin.master.page import PageCutter, roomy_page_bytes, seal
from adjoin.master.sort import ExternalSorter
from adjoin.master.source import Source, open_source
from adjoin.master.vacuum import remove_orphans
from adjoin.master.versions import Home
from adjoin.parts.arena import BLOCK_BYTES
from adjoin.parts.progress import Progress

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
                f"page_bytes={self.page_bytes!r}: give a multiple of {BLOCK_BYTES}, "
                f"at most {_LARGEST_PAGE_BYTES}"
            )
        if not isinstance(self.fill, int | float) or not 0 < self.fill <= 1:
            raise OptionError(f"fill={self.fill!r}: give a number above 0 and at most 1")
        if not _is_whole(self.filter_bits, 0, 64):
            raise OptionError(f"filter_bits={self.filter_bits!r}: give bits per key, 0 (no filter) to 64")
        if self.null_keys not in {"error", "drop"}:
            raise OptionError(f'null_keys={self.null_keys!r}: give "error" or "drop"')


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and least <= value <= most


def build(
    source: Any, key: str | Sequence[str], home: Home, options: BuildOptions, progress: Progress
) -> None:
    """Sort, cut and write the rows of the source, and commit them as version 1."""
    rows = open_source(source, max(BLOCK_BYTES, options.memory_bytes // 16))
    columns = _check_columns(rows.schema, key)
    codec = KeyCodec.of(rows.schema, columns, hash_bits=options.hash_bits)
    _refuse_existing(home)
    home.create()
    with ExitStack() as stack:
        stack.enter_context(_sweep_and_lock(home))
        builder = _Builder(home, rows, codec, options, progress)
        stack.callback(builder.close)
        manifest = builder.run()
        try:
            home.commit(manifest)
        except ConflictError:
            _refuse_existing(home)
            raise


def write_index(
    home: Home, index: PageIndex, key_filter: KeyFilter | None, created: list[str]
) -> tuple[IndexFile, IndexFile | None]:
    """Write index and filter files, durable when this returns; their paths are added to `created`."""
    data = index.to_bytes()
    index_file = IndexFile(home.write_index_file(data, created), checksum_of(data))
    filter_file = None
    if key_filter is not None:
        data = key_filter.to_bytes()
        filter_file = IndexFile(home.write_index_file(data, created), checksum_of(data), key_filter.capacity)
    files.sync_dir(home.index_dir)
    return index_file, filter_file


def _check_columns(schema: pa.Schema, key: str | Sequence[str]) -> list[str]:
    columns = [key] if isinstance(key, str) else list(key) if isinstance(key, Sequence) else []
    if not columns or len(set(columns)) < len(columns):
        raise OptionError(f"key={key!r}: give the name of a column, or a list of different names")
    missing = [name for name in columns if name not in schema.names]
    if missing:
        raise SchemaError(f"key columns {missing} are not among the columns {schema.names}")
    for name in (KEY_COLUMN, OPERATION_COLUMN):
        if name in schema.names:
            raise SchemaError(f"column {name!r} has a name that adjoin uses itself; rename it")
    return columns


def _refuse_existing(home: Home) -> None:
    if home.versions():
        raise MasterExistsError(
            f"there is a master at {home.path} already; open it with Master.open and change it with apply, "
            "or build at another path"
        )


def _sweep_and_lock(home: Home) -> files.Lock:
    """Remove what a crashed build has left, then let other writers in again."""
    lock = files.lock_file(home.lock_path, exclusive=True)
    if lock is None:
        return home.lock_writers()
    if not home.versions():
        remove_orphans(home, set())
    lock.share()
    return lock


class _Builder:
    def __init__(
        self, home: Home, source: Source, codec: KeyCodec, options: BuildOptions, progress: Progress
    ) -> None:
        self._home = home
        self._source = source
        self._codec = codec
        self._options = options
        self._progress = progress
        self._schema = stored_schema(source.schema, codec)
        self._key_column = key_column(codec)
        self._sorter = ExternalSorter(
            lambda: home.temporary(".run"), self._schema, self._key_column, options.memory_bytes
        )
        self._writer = PageWriter(home.data_dir, self._schema, options.file_bytes)
        self._spool = KeySpool(home.temporary(".keys")) if options.filter_bits else None
        self._page_bytes = roomy_page_bytes(self._schema, options.page_bytes)
        self._cutter = PageCutter(self._schema, self._page_bytes, options.fill)
        self._cutter.check_room()
        self._index: list[PageIndex] = []
        self._written_rows = 0
        self._created: list[str] = []

    def run(self) -> Manifest:
        self._read()
        self._write(self._sorter.sorted())
        index = PageIndex.concat(self._index)
        data_files = self._writer.finish()
        key_filter = self._spool.to_filter(self._options.filter_bits) if self._spool else None
        index_file, filter_file = write_index(self._home, index, key_filter, self._created)
        empty = Manifest(
            version=1,
            created=now(),
            key=self._codec.columns,
            codec=self._codec,
            schema=self._source.schema,
            page_bytes=self._page_bytes,
            fill=self._options.fill,
            filter_bits=self._options.filter_bits,
            rows=0,
            pages=0,
            bytes=0,
            files=(),
            index=index_file,
            filter=filter_file,
            txns=(),
        )
        return empty.with_pages(index, tuple(data_files), index_file, filter_file)

    def close(self) -> None:
        self._progress.close()
        self._sorter.close()
        self._writer.close()
        if self._spool:
            self._spool.close()
        self._home.discard_unless_committed(1, [*self._writer.paths, *self._created])

    def _read(self) -> None:
        null_rows = 0
        read_rows = 0
        for given in self._source.batches:
            batch = self._without_null_keys(given)
            read_rows += given.num_rows
            null_rows += given.num_rows - batch.num_rows
            if batch.num_rows and (not null_rows or self._options.null_keys == "drop"):
                self._sorter.add(self._with_key(batch))
            self._progress.update("sorting", read_rows, self._source.rows)
        if null_rows and self._options.null_keys == "error":
            raise NullKeyError(
                f"{null_rows} of {read_rows} rows have a null in the key {list(self._codec.columns)}; "
                'remove them, or build with null_keys="drop"'
            )

    def _without_null_keys(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        valid = valid_rows([batch.column(name) for name in self._codec.columns])
        return batch if valid is None else batch.filter(pa.array(valid))

    def _with_key(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch in the stored schema: the encoded key first, unless a column is its own."""
        if self._codec.kind == "identity":
            return pa.record_batch(batch.columns, schema=self._schema)
        keys, _ = self._codec.encode([batch.column(name) for name in self._codec.columns])
        return pa.record_batch([pa.array(keys), *batch.columns], schema=self._schema)

    def _write(self, batches: Iterator[pa.RecordBatch]) -> None:
        limit_bytes = max(2 * self._page_bytes, min(_CUT_BYTES, self._options.memory_bytes // 32))
        waiting: list[pa.RecordBatch] = []
        waiting_bytes = 0
        for batch in batches:
            waiting.append(batch)
            waiting_bytes += batch.nbytes
            if waiting_bytes >= limit_bytes:
                waiting = [self._write_pages(pa.concat_batches(waiting), more=True)]
                waiting_bytes = waiting[0].nbytes
        if waiting:
            self._write_pages(pa.concat_batches(waiting), more=False)

    def _write_pages(self, rows: pa.RecordBatch, *, more: bool) -> pa.RecordBatch:
        """Write all whole pages; return the rows that are left."""
        cuts = self._cutter.cut(rows, more=more)
        if len(cuts):
            keys = encoded_values(rows.column(self._key_column))
            self._index.append(self._writer.write(keys, cuts.bounds, seal(rows, cuts)))
            if self._spool:
                self._spool.add(keys[: cuts.rows])
            self._written_rows += cuts.rows
            self._progress.update("writing", self._written_rows, self._sorter.rows)
        return rows.slice(cuts.rows)
