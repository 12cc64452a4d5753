"""The master: a sorted relation on disk, with versions."""

import datetime
import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from adjoin import arguments
from adjoin.arguments import parse_duration
from adjoin.errors import ConflictError, OptionError, VersionNotFoundError
from adjoin.keys.codec import KeyCodec
from adjoin.master.apply import ApplyOptions, Base, refuse_stale
from adjoin.master.backends import backend_for, mover_for
from adjoin.master.build import BuildOptions
from adjoin.master.compact import compact
from adjoin.master.data_file import DataFile
from adjoin.master.evolve import Evolution, View, evolved, refuse_other
from adjoin.master.filter import CheckedFilter, KeyFilter
from adjoin.master.index import CheckedIndex, PageIndex
from adjoin.master.layout import StoredColumns
from adjoin.master.manifest import Manifest, Txn
from adjoin.master.migrate import migrate
from adjoin.master.progress import Progress
from adjoin.master.vacuum import Vacuumed, retention_of, vacuum, vacuum_after_commit
from adjoin.master.verify import MappedIndex, load_filter, load_index, verify
from adjoin.master.versions import Home, Pinned
from adjoin.memory.budget import parse_bytes


class Master:
    """One version of a master, open for reading; create it with `build` or `open`.

    How it works: rows are sorted by an encoded key and cut into pages, each of which is an Arrow record
    batch in a plain Arrow IPC file. A version is an immutable manifest that names its data files, index
    and filter. As long as this object lives, `vacuum` leaves its version alone.
    """

    def __init__(
        self, home: Home, pinned: Pinned, mapped: MappedIndex | None = None, view: View | None = None
    ) -> None:
        self._home = home
        self._view = view
        self._lock = pinned.lock
        try:
            self._manifest = pinned.manifest if view is None else view.through(pinned.manifest, home.path)
        except BaseException:
            pinned.lock.release()
            raise
        self._mapped = mapped or MappedIndex(home, pinned.manifest)
        self._release = weakref.finalize(self, pinned.lock.release)

    @classmethod
    def build(
        cls,
        source: Any,
        key: str | Sequence[str],
        path: str | os.PathLike[str],
        *,
        page_bytes: int = 8192,
        fill: float = 0.8,
        filter_bits: int = 0,
        memory: int | str = "256MB",
        null_keys: str = "error",
        progress: bool | None = None,
    ) -> "Master":
        """Build a master from rows and open it.

        Args:
            source: A pyarrow Table, RecordBatch, RecordBatchReader or Dataset, a path to a Parquet file or
                to a directory of them, or a Spark DataFrame, whose rows are sorted and written by executors.
            key: The key column, or a list of several. Keys may repeat.
            path: The directory of the master, created if it does not exist; a local path, plain or as
                `file:///...`, which must mean the same directory on all executors.
            page_bytes: The length of a page, a multiple of 4096; it is raised if the metadata of many columns
                would take more than a quarter of it. A longer row gets a longer page.
            fill: The fraction of a page that is filled, so that later changes find room.
            filter_bits: Bits per key of the membership filter, 0 for none. With 8, about 2 % of the keys
                that do not exist still cost a read.
            memory: The memory for sorting, on Spark per task; what exceeds it is spilled to `path`. The
                current batch of the source is not included.
            null_keys: "error", or "drop" to leave out rows with a null key.
            progress: Whether to show a progress bar on stderr; None shows it if stderr is a terminal.

        Returns:
            Version 1.

        Raises:
            MasterExistsError: There is already a master at the path.
            NullKeyError: Rows have null keys; the message says how many.
            SchemaError: A column has a type that cannot be stored, or that cannot be a key.
            StorageError: The file system refused, for example because the disk is full.

        Example:
            >>> import tempfile
            >>> products = pa.table({"product_id": [3, 1, 2], "name": ["pen", "ink", "paper"]})
            >>> with tempfile.TemporaryDirectory() as path:
            ...     with Master.build(products, key="product_id", path=path) as master:
            ...         master.rows, master.pages, master.version
            (3, 1, 1)

        Cost: each row is read, sorted and written once, and once more for every factor of 64 by which
        the rows exceed a quarter of `memory`.
        """
        options = BuildOptions(
            page_bytes=page_bytes,
            fill=fill,
            filter_bits=filter_bits,
            memory_bytes=parse_bytes(memory),
            null_keys=null_keys,
        )
        home = Home(path)
        backend_for(source).build(source, key, home, options, Progress(progress))
        return cls(home, home.pin(1))

    @classmethod
    def open(cls, path: str | os.PathLike[str], version: int | None = None) -> "Master":
        """Open the newest version of the master at the path, or a given one.

        Args:
            path: The directory that `build` was given.
            version: The version to open; the newest by default.

        Returns:
            The master at that version, which `vacuum` leaves alone until it is closed.

        Raises:
            MasterNotFoundError: There is no master at the path.
            VersionNotFoundError: There is no such version.
            CorruptionError: The manifest is damaged; an older version may be intact.
        """
        home = Home(path)
        return cls(home, home.pin(version))

    @staticmethod
    def migrate(path: str | os.PathLike[str]) -> list[int]:
        """Convert a master written by an older adjoin to the current format.

        Manifests and indexes are rewritten; data files and version numbers stay as they are. Nobody may
        read or change the master in the meantime. If the migration is interrupted, run it again.

        Returns:
            The versions that were migrated.

        Raises:
            MasterNotFoundError: There is no master at the path.
            ConflictError: The master is in use.
        """
        return migrate(Home(path))

    def at(self, version: int) -> "Master":
        """Open another version of the same master; this object stays on its own.

        Raises:
            VersionNotFoundError: It was never committed, or `vacuum` has removed it.
            MasterReplacedError: There is another master at the path now.
        """
        return self._at(arguments.whole_number("version", version, 0), self._view)

    def view(self, columns: Sequence[str] | None = None) -> View:
        """A view of this version: all its columns, or the key and the given ones. See `seen_as`."""
        return View.of(self._manifest, columns)

    def seen_as(self, view: View) -> "Master":
        """Open this version with the columns of a view, whatever their names are in this version.

        Raises:
            MasterReplacedError: The view belongs to another master.
            SchemaError: This version lacks a column of the view; the message says which.
        """
        return self._at(self.version, view)

    def _at(self, version: int, view: View | None) -> "Master":
        if version == self.version and self._lock.is_held:
            return Master(self._home, Pinned(self._manifest, self._lock.twin()), self._mapped, view)
        pinned = self._home.pin(version)
        try:
            refuse_other(pinned.manifest, self.id, self.path)
        except BaseException:
            pinned.lock.release()
            raise
        return Master(self._home, pinned, view=view)

    def versions(self) -> list[int]:
        """The existing versions, oldest first."""
        return self._home.versions()

    @property
    def path(self) -> str:
        """The directory of the master."""
        return self._home.path

    @property
    def version(self) -> int:
        """The number of this version; the first is 1."""
        return self._manifest.version

    @property
    def revision(self) -> int:
        """Counts changes of rows or columns; versions that differ only in where pages are share it."""
        return self._manifest.revision

    @property
    def manifest(self) -> Manifest:
        """What this version consists of. Its attributes are not a contract: releases may change them."""
        return self._manifest

    @property
    def schema(self) -> pa.Schema:
        """The columns as they were given, decoded."""
        return self._manifest.schema

    @property
    def stored_schema(self) -> pa.Schema:
        """The columns of the data files; the encoded key comes first, unless the key column is its own."""
        return self._manifest.stored_schema

    @property
    def stored(self) -> StoredColumns:
        """The columns that pages are read as, whatever columns they were written with."""
        return self._manifest.stored

    @property
    def id(self) -> str:
        """The identity of the master; another master built at the same path has another one."""
        return self._manifest.id

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns."""
        return self._manifest.key

    @property
    def key_column(self) -> str:
        """The stored int64 column that holds the encoded key."""
        return self._manifest.key_column

    @property
    def codec(self) -> KeyCodec:
        """How keys become int64."""
        return self._manifest.codec

    @property
    def rows(self) -> int:
        """The number of rows of this version."""
        return self._manifest.rows

    @property
    def pages(self) -> int:
        """The number of pages of this version."""
        return self._manifest.pages

    @property
    def bytes(self) -> int:
        """The total size of the pages of this version, including padding."""
        return self._manifest.bytes

    @property
    def page_bytes(self) -> int:
        """The length of a page; only a page with a single long row is longer."""
        return self._manifest.page_bytes

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The data files; `index.file` is a position in this sequence."""
        return self._manifest.files

    @property
    def index(self) -> PageIndex:
        """Where each page is and which keys it holds; read and verified on first use."""
        return self._mapped.index

    @property
    def filter(self) -> KeyFilter | None:
        """The membership filter, if the master was built with one; read and verified on first use."""
        return self._mapped.filter

    @property
    def checked_index(self) -> CheckedIndex:
        """The index in its mapped file, which all processes share; verified block by block on every use."""
        return self._mapped.checked_index

    @property
    def checked_filter(self) -> CheckedFilter | None:
        """The filter, if there is one, in its mapped file; verified block by block on every use."""
        return self._mapped.checked_filter

    @property
    def index_name(self) -> str:
        """Identifies the numbering of pages: the same in versions that have the same pages."""
        return self._manifest.index.name

    @property
    def index_file_bytes(self) -> int:
        """The size of the index and filter files; in memory they take no more than that."""
        named = [self._manifest.index, *([self._manifest.filter] if self._manifest.filter else [])]
        return sum(os.path.getsize(os.path.join(self._home.index_dir, file.name)) for file in named)

    @property
    def marks(self) -> Mapping[str, int]:
        """The integers that `apply` was told to keep with this version."""
        return dict(self._manifest.marks)

    def load_index(self) -> PageIndex:
        """Read and verify the index again; the caller owns its memory."""
        return load_index(self._home, self._manifest)

    def load_filter(self) -> KeyFilter | None:
        """Read and verify the filter again; the caller owns its memory."""
        return load_filter(self._home, self._manifest)

    def apply(
        self,
        changes: Any,
        txn: Txn | None = None,
        *,
        order_by: str | Sequence[str] = (),
        sequence: str | None = None,
        tombstones: str | datetime.timedelta | None = "30 days",
        evolve: bool = False,
        marks: Mapping[str, int] | None = None,
        memory: int | str = "256MB",
        keep: int | None = 10,
        keep_for: str | datetime.timedelta | None = None,
    ) -> "Master":
        """Commit changes as the next version, and open it; this object stays on its own version.

        How it works: the changes are sorted by key; the pages they touch are read, changed and written as
        new pages, and both versions share all others. The result is as if the changes had been applied one
        row at a time, in the order given. On Spark, executors do this for ranges of keys.

        Upkeep: the commit also moves pages out of data files that are mostly garbage, or numerous and small,
        so that data files take at most 1.5 bytes for each byte of live pages (`adjoin.master.page_moves`).
        Old versions are then removed as by `vacuum(keep, keep_for=keep_for)`. Moreover, while disk use
        exceeds twice the live bytes of the newest version (or 4 MB, if that is more) plus what versions in
        use hold, the oldest versions that are not in use are removed, however few or young they are, but
        never the newest. In use are the versions that are open, the one after each of them, and those that
        records name.

        Args:
            changes: A pyarrow Table, RecordBatch or RecordBatchReader, or a Spark DataFrame, with the
                master's columns, in any order, and a column ``_op``: "upsert" replaces all rows with the
                key by this one, "delete" removes all rows with the key (other columns are ignored
                and may be missing), "insert" adds one more row with the key.
            txn: A name for this change set. If one of the last 10,000 change sets had the same name, this
                one counts as a repetition and nothing happens. Or a name and a number, such as
                ("products", batch_id): then it is a repetition if a change set of this name had
                this number or a greater one, however long ago.
            order_by: The column, or several, that order the changes of a key; the master need not have
                them. A DataFrame has no order of its own: without `order_by`, two changes of one key are an
                error unless both are inserts, and with it, two changes that compare equal are. The order
                holds within one call; across calls, use `sequence`.
            sequence: The column that says when a change was made: an integer, decimal, float, date,
                timestamp, string or binary (compared bytewise), which the master may have or lack.
                The change with the greatest value wins, whenever it arrives: a change with a smaller value
                than the last one that took effect for its key is dropped, even after a delete. Of equal
                values, the later call wins; within a call, `order_by` decides. Nulls and inserts are errors.
                All calls must name the same column. Rows that were built, or changed without a sequence,
                have no value, so any change wins over them; a call without a sequence changes rows
                regardless of recorded values, and records none.
            tombstones: How long deletes with a sequence are remembered, at least; None means forever. After
                that, an older change of a deleted key that still arrives takes effect again. Each call drops
                some of the deletes that are older than its `tombstones`, whichever call recorded them.
            evolve: Add columns that the changes have and the master lacks; existing rows get nulls there.
                Without this, such columns are an error. Columns for `order_by` and `sequence` are not added.
            marks: Named integers to commit together with the changes; marks with other names stay.
            memory: The memory for the work, on Spark per task; all changes of a single key must fit.
            keep: How many of the newest versions to keep. None means no upkeep: call `compact` and `vacuum`
                yourself.
            keep_for: Also keep versions younger than this: a duration such as "12 hours", or a timedelta.

        Returns:
            The new version; the newest if `txn` was applied before; the same one if nothing changes.

        Raises:
            ConflictError: Another writer committed after this version; open the master again and retry, with
                a new reader if the changes came from one.
            SchemaError: A column is missing, unknown, or of a type that does not fit.
            OptionError: The order of several changes of one key is not known, or earlier calls named another
                sequence column.
            MasterReplacedError: There is another master at the path now.

        Example:
            >>> import tempfile
            >>> products = pa.table({"product_id": [1, 2], "name": ["ink", "paper"]})
            >>> changes = pa.table({"_op": ["upsert", "delete"], "product_id": [3, 1], "name": ["pen", None]})
            >>> with tempfile.TemporaryDirectory() as path:
            ...     master = Master.build(products, key="product_id", path=path)
            ...     newer = master.apply(changes, txn="load-17")
            ...     newer.version, newer.rows, master.rows
            (2, 2, 2)

            In foreachBatch, so that a micro-batch that Spark repeats changes nothing:

            >>> def write(batch, batch_id):
            ...     products = Master.open("/warehouse/products")
            ...     products.apply(batch, ("products", batch_id), sequence="changed_at")

        Cost: reads and writes the touched pages, and writes the index once; upkeep reads and writes at most
        three times the bytes of the replaced pages, plus one data file. A sequence costs the same again for
        the records of the latest changes, which take the key and about 20 bytes for each key that was
        changed with a sequence.
        """
        options = ApplyOptions(
            txn=txn,
            order_by=(order_by,) if isinstance(order_by, str) else arguments.names("order_by", order_by),
            evolve=evolve,
            marks=_marks_of(marks),
            memory_bytes=parse_bytes(memory),
            sequence=sequence,
            tombstone_seconds=None if tombstones is None else parse_duration("tombstones", tombstones),
        )
        retention = retention_of(keep, keep_for)
        options = replace(options, is_tidy=retention is not None)
        applied = self._apply(changes, options)
        if retention is not None:
            vacuum_after_commit(self._home, retention)
        return applied

    def _apply(self, changes: Any, options: ApplyOptions) -> "Master":
        with self._home.lock_writers():
            newest = self._newest()
            if newest.manifest.has_applied(options.txn):
                return newest
            refuse_stale(self.path, self._manifest, newest.manifest)
            base = Base(newest.manifest, newest.index, newest.filter)
            try:
                committed = backend_for(changes).apply(self._home, base, changes, options)
            except ConflictError:
                newest = self._newest()
                if newest.manifest.has_applied(options.txn):
                    return newest
                raise
            try:
                return newest if committed is None else self.at(committed)
            except VersionNotFoundError:  # other writers have committed and vacuumed since
                return self._newest()

    def compact(self, *, memory: int | str = "256MB") -> "Master":
        """Commit a version with the same rows in fewer and fuller files, and open it.

        How it works: pages in data files that are partly garbage, or small, are copied unchanged to new
        files. Before that, neighboring pages that many deletes have left mostly empty are merged, and
        pages that were written before the last `evolve` are rewritten with the current columns; if another
        writer commits in the meantime, these two steps are left to the next call. Readers and writers are
        not blocked: pages of a writer that commits first stay as they are, and the remaining ones are moved.
        `vacuum` removes the old files together with the versions that use them. With a Spark session,
        executors copy the pages of large masters.

        Args:
            memory: The memory for the work, on Spark per task.

        Returns:
            The new version, which has the same `revision`; the newest if there is nothing to do.

        Raises:
            ConflictError: Other writers committed first, in every attempt.
            MasterReplacedError: There is another master at the path now.

        Example:
            >>> import tempfile
            >>> products = pa.table({"product_id": [1, 2], "name": ["ink", "paper"]})
            >>> changes = pa.table({"_op": ["upsert"], "product_id": [3], "name": ["pen"]})
            >>> with tempfile.TemporaryDirectory() as path:
            ...     master = Master.build(products, key="product_id", path=path).apply(changes, keep=None)
            ...     master.compact().revision == master.revision
            True

        Cost: reads and writes the pages that are moved or rewritten, once, and the index.
        """
        with self._home.lock_writers():
            self._newest().close()
            compact(self._home, parse_bytes(memory), mover_for)
            return self._newest()

    def _newest(self) -> "Master":
        """The newest version, with all its columns."""
        newest = Master.open(self.path)
        refuse_other(newest.manifest, self.id, self.path)
        return newest

    def evolve(
        self,
        add: Mapping[str, Any] | None = None,
        drop: str | Sequence[str] = (),
        widen: Mapping[str, Any] | None = None,
        rename: Mapping[str, str] | None = None,
    ) -> "Master":
        """Commit a version with other columns, and open it; no page is rewritten.

        How it works: columns have ids, and data files know which columns their pages hold. A column that an
        older page lacks is read as nulls, and one that has another type there is cast. Queries and operators
        that read the master keep the columns they started with: added columns do not appear, renamed ones
        keep their names, and widened ones keep their types as long as the values fit. A query that needs a
        dropped column ends with a SchemaError.

        Args:
            add: Types of new columns, by name: a pyarrow type, or a name such as "string", "bigint",
                "decimal(10,2)" or "timestamp". All rows have nulls there.
            drop: Columns to drop. The key cannot be dropped.
            widen: New types, by column name, that can hold every value of the old type: a longer integer,
                a longer float, a decimal with more digits. The key, times and nested columns cannot be
                widened.
            rename: New names, by old name; the key can be renamed.

        Returns:
            The new version; the same one if there is nothing to change.

        Raises:
            SchemaError: The change is not possible; the message says why.
            ConflictError: Another writer committed after this version; open the master again and retry.
            MasterReplacedError: There is another master at the path now.

        Example:
            >>> import tempfile
            >>> products = pa.table({"product_id": [1, 2], "name": ["ink", "paper"]})
            >>> with tempfile.TemporaryDirectory() as path:
            ...     master = Master.build(products, key="product_id", path=path)
            ...     master.evolve(add={"color": "string"}, rename={"name": "title"}).schema.names
            ['product_id', 'title', 'color']

        Cost: writes a manifest.
        """
        changes = Evolution.of(add, drop, widen, rename)
        if changes.is_empty:
            return self.at(self.version)
        with self._home.lock_writers():
            newest = self._newest()
            refuse_stale(self.path, self._manifest, newest.manifest)
            self._home.commit(evolved(newest.manifest, changes).next(None, {}))
            return Master(self._home, self._home.pin(newest.version + 1))

    def verify(self) -> None:
        """Read everything this version consists of; raise CorruptionError naming the file if a byte is wrong.

        Checks the manifest, the header and footer of every data file, every page (checksum, Arrow's own
        validation, its keys), the index, and that the filter contains every key; the same for the records of
        the latest changes.

        Cost: reads the whole master once, in bounded memory.
        """
        refuse_other(self._home.read_manifest(self.version), self.id, self.path)
        verify(self._home, self.version)

    def vacuum(
        self,
        keep: int = 10,
        *,
        keep_for: str | datetime.timedelta | None = None,
        records: Sequence[str | os.PathLike[str]] = (),
    ) -> Vacuumed:
        """Remove old versions, the files that only they use, and what crashes have left behind.

        Readers and writers are not blocked. These versions are kept: the newest `keep`; those younger than
        `keep_for`; those that are open, in this or another process, with the version after each; and those
        that a streaming query may need to repeat its last micro-batches, until it has had none for 30
        days. Files left by crashes are removed only if nobody is writing at the moment.

        Queries that keep their records elsewhere (`enrich(..., records=PATH)`) register that directory with
        the master if they can write to it. If the master is read-only for them, give their directories here:
        the master knows them from then on. Versions that are recorded in a directory unknown to the master
        are protected only by `keep` and `keep_for`, and while a task reads them. While a known directory is
        missing, nothing is removed.

        Args:
            keep: How many of the newest versions to keep, at least 1.
            keep_for: Also keep versions younger than this: a duration such as "12 hours", or a timedelta.
            records: More directories where queries keep records.

        Returns:
            The removed versions, and the number of files and bytes.

        Raises:
            StorageError: A directory with records is missing; mount it, or remove its entry.
            CorruptionError: A version that is kept lacks a file.
        """
        self._newest().close()
        retention = retention_of(keep, keep_for)
        if retention is None:
            raise OptionError(f"keep={keep!r}: give how many of the newest versions to keep, at least 1")
        return vacuum(self._home, retention, records)

    def close(self) -> None:
        """Allow `vacuum` to remove this version; reading from it may fail afterwards."""
        self._release()

    def __enter__(self) -> "Master":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Master({self.path!r}, version={self.version}, rows={self.rows}, pages={self.pages})"


def _marks_of(marks: Mapping[str, int] | None) -> dict[str, int]:
    if not isinstance(marks, Mapping | None):
        raise OptionError(f"marks={marks!r}: give a dictionary from names to whole numbers")
    return dict(marks or {})
