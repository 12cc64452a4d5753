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
from adjoin.master.backends import engine_for, mover_for
from adjoin.master.build import BuildOptions
from adjoin.master.compact import compact
from adjoin.master.data_file import DataFile
from adjoin.master.evolve import Evolution, View, evolved, refuse_other
from adjoin.master.filter import CheckedFilter, KeyFilter
from adjoin.master.index import CheckedIndex, PageIndex
from adjoin.master.layout import StoredColumns
from adjoin.master.manifest import Txn
from adjoin.master.migrate import migrate
from adjoin.master.progress import Progress
from adjoin.master.vacuum import Vacuumed, retention_of, vacuum, vacuum_after_commit
from adjoin.master.verify import MappedIndex, load_filter, load_index, verify
from adjoin.master.versions import Home, Pinned
from adjoin.memory.budget import parse_bytes


class Master:
    """One version of a master, open for reading; `build` and `open` make it.

    How it works: rows are sorted by an encoded key and cut into pages, each of them an Arrow record
    batch in a plain Arrow IPC file. A version is an immutable manifest that names data files, index
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
        """Make a master from rows and open it.

        Args:
            source: A pyarrow Table, RecordBatch, RecordBatchReader or Dataset, a path to a Parquet file or
                to a directory of them, or a Spark DataFrame, whose rows the executors sort and write.
            key: The key column, or several. Keys may repeat.
            path: A directory for the master, made if need be; a local path, plain or as `file:///...`.
                Executors must see it under the same name.
            page_bytes: The length of a page, a multiple of 4096; raised where the metadata of many columns
                would take more than a quarter of it. A longer row gets a longer page.
            fill: How full pages are made, so that later changes find room.
            filter_bits: Bits per key of the membership filter, 0 for none. With 8, about 2 % of the keys
                that do not exist still cost a read.
            memory: What sorting may hold, on Spark in each task; more is spilled to `path`. The batch that
                the source hands out comes on top.
            null_keys: "error", or "drop" to leave out rows with a null key.
            progress: Show a bar on stderr; None shows it if that is a terminal.

        Returns:
            Version 1.

        Raises:
            MasterExistsError: There is a master at the path.
            NullKeyError: Rows have null keys; says how many.
            SchemaError: A column has a type that cannot be stored, or cannot be a key.
            StorageError: The file system refused, for example because the disk is full.

        Example:
            >>> import tempfile
            >>> products = pa.table({"product_id": [3, 1, 2], "name": ["pen", "ink", "paper"]})
            >>> with tempfile.TemporaryDirectory() as path:
            ...     with Master.build(products, key="product_id", path=path) as master:
            ...         master.rows, master.pages, master.version
            (3, 1, 1)

        Cost: every row is read, sorted and written once, and once more for each factor of 64 by which
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
        engine_for(source).build(source, key, home, options, Progress(progress))
        return cls(home, home.pin(1))

    @classmethod
    def open(cls, path: str | os.PathLike[str], version: int | None = None) -> "Master":
        """Open the newest version of the master at the path, or the one given.

        Args:
            path: The directory that `build` was given.
            version: Which one; the newest by default.

        Returns:
            The master at that version, which `vacuum` leaves alone until it is closed.

        Raises:
            MasterNotFoundError: There is no master at the path.
            VersionNotFoundError: There is no such version.
            CorruptionError: Its manifest is damaged; an older version may be whole.
        """
        home = Home(path)
        return cls(home, home.pin(version))

    @staticmethod
    def migrate(path: str | os.PathLike[str]) -> list[int]:
        """Bring a master that an older adjoin has written to the format of today.

        Manifests and indexes are written anew, data files stay. Versions keep their numbers. Nobody may
        read or change the master meanwhile. If it breaks off, run it again.

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
            VersionNotFoundError: It was never committed, or has been vacuumed.
            MasterReplacedError: The path has another master now.
        """
        return self._at(arguments.whole_number("version", version, 0), self._view)

    def view(self, columns: Sequence[str] | None = None) -> View:
        """The columns of this version, or the key and these, to read other versions with: see `seen_as`."""
        return View.of(self._manifest, columns)

    def seen_as(self, view: View) -> "Master":
        """This version with the columns of a view, whatever they are called here.

        Raises:
            MasterReplacedError: The view is one of another master.
            SchemaError: This version lacks a column of the view; says which.
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
        """The versions there are now, oldest first."""
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
        """Counts changes of rows or columns: the same in versions that differ in places of pages alone."""
        return self._manifest.revision

    @property
    def schema(self) -> pa.Schema:
        """The columns as they were given, encodings undone."""
        return self._manifest.schema

    @property
    def stored_schema(self) -> pa.Schema:
        """The columns of the data files; an encoded key comes first unless a column is its own encoding."""
        return self._manifest.stored_schema

    @property
    def stored(self) -> StoredColumns:
        """The columns as which pages are read, whatever they were written with."""
        return self._manifest.stored

    @property
    def id(self) -> str:
        """The identity of the master: another one that is built at the same path has another."""
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
        """Rows of this version."""
        return self._manifest.rows

    @property
    def pages(self) -> int:
        """Pages of this version."""
        return self._manifest.pages

    @property
    def bytes(self) -> int:
        """Bytes of the pages of this version, padding included."""
        return self._manifest.bytes

    @property
    def page_bytes(self) -> int:
        """The length of a page; only pages of a single long row are longer."""
        return self._manifest.page_bytes

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The data files, in the order in which `index.file` counts them."""
        return self._manifest.files

    @property
    def index(self) -> PageIndex:
        """Where each page is and which keys it holds; read and verified at first use."""
        return self._mapped.index

    @property
    def filter(self) -> KeyFilter | None:
        """The membership filter, if the master was built with one; read and verified at first use."""
        return self._mapped.filter

    @property
    def checked_index(self) -> CheckedIndex:
        """The index in its mapped file, which all processes share; verified block by block at every use."""
        return self._mapped.checked_index

    @property
    def checked_filter(self) -> CheckedFilter | None:
        """The filter, if there is one, in its mapped file; verified block by block at every use."""
        return self._mapped.checked_filter

    @property
    def index_name(self) -> str:
        """Tells how pages are counted: the same in versions that have the same pages."""
        return self._manifest.index.name

    @property
    def index_file_bytes(self) -> int:
        """Bytes of the files of index and filter; in memory they take no more."""
        named = [self._manifest.index, *([self._manifest.filter] if self._manifest.filter else [])]
        return sum(os.path.getsize(os.path.join(self._home.index_dir, file.name)) for file in named)

    @property
    def marks(self) -> Mapping[str, int]:
        """Integers that `apply` was given to keep with this version."""
        return dict(self._manifest.marks)

    def load_index(self) -> PageIndex:
        """The index, read and verified anew; whoever asks owns its memory."""
        return load_index(self._home, self._manifest)

    def load_filter(self) -> KeyFilter | None:
        """The filter, read and verified anew; whoever asks owns its memory."""
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

        How it works: the changes are sorted by key, the pages they touch are read, changed and written
        anew; all other pages are shared by both versions. The result is as if the changes had been
        applied one row at a time, in the order given. On Spark, executors do this for ranges of keys.

        Upkeep: the commit also moves pages out of data files that are mostly garbage, or many and small,
        so that data files have at most 1.5 bytes for each byte of live pages (`adjoin.master.page_moves`).
        After it, old versions are removed as by `vacuum(keep, keep_for=keep_for)`; and, however few or
        young they are, the oldest that are not in use, never the newest, while disk use is more than two
        times the live bytes of the newest version (or 4 MB, if that is more) and what versions in use hold.
        In use are versions that are open, the one that follows each, and those that records name.

        Args:
            changes: A pyarrow Table, RecordBatch or RecordBatchReader, or a Spark DataFrame, with the
                master's columns, in any order, and a column ``_op``: "upsert" removes all rows with the
                key and puts this one, "delete" removes all rows with the key (other columns are ignored
                and may be missing), "insert" adds one more row with the key.
            txn: A name for this change set. If one of the last 10,000 change sets had the same name, this
                one is taken for a repetition and nothing happens. Or a name and a number, such as
                ("products", batch_id): then it is a repetition if a change set of this name had
                this number or a greater one, however long ago.
            order_by: The column, or several, by which changes of one key are ordered; it may be one that
                the master lacks. A DataFrame has no order of its own: without this, two changes of one
                key are an error unless both are inserts, and with it, so are two in the same place. It
                says nothing about changes that come in different calls; `sequence` does.
            sequence: The column that says when a change was made: an integer, decimal, float, date,
                timestamp, string or binary (compared bytewise), in a column that the master has or lacks.
                The change with the greatest value wins, whenever it arrives: one with a smaller value than
                the last that counted for its key is dropped, also after a delete; of equal values that of
                the later call wins, within one call what `order_by` says. Nulls and inserts are errors.
                The column is the same in all calls. Rows that were built, or changed without a sequence,
                have no value: any change wins over them, and a call without a sequence changes rows whatever
                is recorded, and records nothing.
            tombstones: For how long deletes with a sequence are remembered, at least; None: for ever. After
                that an older change of a deleted key, if one still comes, counts again. A call drops some of
                those that are older than it says, whichever call recorded them.
            evolve: Add columns of the changes that the master lacks; rows that it has get nulls there.
                Without this, such columns are an error. Columns for `order_by` and `sequence` are not added.
            marks: Integers to keep under names, committed together with the changes; others stay.
            memory: What the work may hold at once, on Spark in each task; all changes of a single key must
                fit.
            keep: How many of the newest versions stay. None: no upkeep; call `compact` and `vacuum` yourself.
            keep_for: Versions younger than this stay too: a duration such as "12 hours", or a timedelta.

        Returns:
            The new version; the newest if `txn` was applied before; the same one if nothing changes.

        Raises:
            ConflictError: Another writer has committed since this version; open again and retry, with a
                new reader if the changes came from one.
            SchemaError: A column is missing, unknown or of a type that does not fit.
            OptionError: It is not known which of several changes of one key comes last, or another column
                was the sequence before.
            MasterReplacedError: The path has another master now.

        Example:
            >>> import tempfile
            >>> products = pa.table({"product_id": [1, 2], "name": ["ink", "paper"]})
            >>> changes = pa.table({"_op": ["upsert", "delete"], "product_id": [3, 1], "name": ["pen", None]})
            >>> with tempfile.TemporaryDirectory() as path:
            ...     master = Master.build(products, key="product_id", path=path)
            ...     newer = master.apply(changes, txn="load-17")
            ...     newer.version, newer.rows, master.rows
            (2, 2, 2)

            In foreachBatch, a micro-batch that Spark repeats changes nothing:

            >>> def write(batch, batch_id):
            ...     products = Master.open("/warehouse/products")
            ...     products.apply(batch, ("products", batch_id), sequence="changed_at")

        Cost: reads and writes the touched pages, and writes the index once; for upkeep it reads and writes
        at most three times the bytes of the pages it replaces, and one data file. With a sequence, the same
        for the records of latest changes, which take the key and about 20 bytes for each key that was
        changed so.
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
            if newest._manifest.has_applied(options.txn):
                return newest
            refuse_stale(self.path, self._manifest, newest._manifest)
            base = Base(newest._manifest, newest.index, newest.filter)
            try:
                committed = engine_for(changes).apply(self._home, base, changes, options)
            except ConflictError:
                newest = self._newest()
                if newest._manifest.has_applied(options.txn):
                    return newest
                raise
            try:
                return newest if committed is None else self.at(committed)
            except VersionNotFoundError:  # others have committed and vacuumed since
                return self._newest()

    def compact(self, *, memory: int | str = "256MB") -> "Master":
        """Commit a version with the same rows in fewer and fuller files, and open it.

        How it works: pages in data files that are partly garbage, or small, are copied to new files as
        they are. Before that, neighboring pages that are mostly empty, after many deletes, are merged, and
        pages that were written before the last `evolve` are rewritten with the columns of today; both wait
        for the next time if another writer commits meanwhile. Readers and writers go on: a writer who
        commits first keeps his pages, and the others are moved in what he has left. The old files go with
        the versions that use them, by `vacuum`. With a Spark session, executors copy the pages of large
        masters.

        Args:
            memory: What the work may hold at once, on Spark in each task.

        Returns:
            The new version; the newest if there is nothing to do. Its `revision` is that of the rows.

        Raises:
            ConflictError: Other writers were faster, time and again.
            MasterReplacedError: The path has another master now.

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
        refuse_other(newest._manifest, self.id, self.path)
        return newest

    def evolve(
        self,
        add: Mapping[str, Any] | None = None,
        drop: str | Sequence[str] = (),
        widen: Mapping[str, Any] | None = None,
        rename: Mapping[str, str] | None = None,
    ) -> "Master":
        """Commit a version with other columns, and open it; no page is rewritten.

        How it works: columns have ids, and data files know which columns their pages hold. Older pages are
        read as nulls where they lack a column, and cast where it has another type. Queries and operators
        that read the master keep the columns they began with: what was added does not appear, what was
        renamed keeps its name, what was widened its type, as long as its values fit. One that needs a
        column that was dropped ends with a SchemaError.

        Args:
            add: Types of new columns, by name: a pyarrow type, or a name such as "string", "bigint",
                "decimal(10,2)" or "timestamp". All rows have nulls there.
            drop: Columns to drop. The key cannot be dropped.
            widen: New types, by name, of which every value of the old type is a value: a longer integer,
                a longer float, a decimal with more digits. Not for the key, times and nested columns.
            rename: New names, by old name; the key can be renamed.

        Returns:
            The new version; the same one if there is nothing to change.

        Raises:
            SchemaError: It cannot be done; says why.
            ConflictError: Another writer has committed since this version; open again and retry.
            MasterReplacedError: The path has another master now.

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
            refuse_stale(self.path, self._manifest, newest._manifest)
            self._home.commit(evolved(newest._manifest, changes).next(None, {}))
            return Master(self._home, self._home.pin(newest.version + 1))

    def verify(self) -> None:
        """Read everything this version consists of; raise CorruptionError naming the file if a byte is wrong.

        Checks the manifest, the envelope of every data file, every page (checksum, Arrow's own
        validation, its keys), the index, and that the filter has every key; the same for the records of
        latest changes.

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

        Writers and readers go on meanwhile. These versions stay: the newest `keep`, those younger than
        `keep_for`, those that are open, here or in another process, with the one that follows each, and
        those that a streaming query may need to repeat its last micro-batches, until it had none for 30
        days. What crashes have left behind goes only if nobody writes at the moment.

        Queries that keep their records elsewhere (`enrich(..., records=PATH)`) name that place in the
        master if they can write there. If they cannot, because the master is read-only for them, give
        their places here: they are known to the master from then on. Versions that are recorded in a place
        that the master does not know are protected by `keep` and `keep_for` alone, and while a task reads
        them. While a known place is missing, nothing is removed.

        Args:
            keep: How many of the newest versions stay, at least 1.
            keep_for: Versions younger than this stay too: a duration such as "12 hours", or a timedelta.
            records: More places where queries keep records.

        Returns:
            The versions removed, and how many files and bytes.

        Raises:
            StorageError: A place with records is missing; mount it, or remove its entry.
            CorruptionError: A version that stays lacks a file.
        """
        self._newest().close()
        retention = retention_of(keep, keep_for)
        if retention is None:
            raise OptionError(f"keep={keep!r}: give how many of the newest versions stay, at least 1")
        return vacuum(self._home, retention, records)

    def close(self) -> None:
        """Let `vacuum` remove this version. Reading from it afterwards may fail."""
        self._release()

    def __enter__(self) -> "Master":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Master({self.path!r}, version={self.version}, rows={self.rows}, pages={self.pages})"


def _marks_of(marks: Mapping[str, int] | None) -> dict[str, int]:
    if not isinstance(marks, Mapping | None):
        raise OptionError(f"marks={marks!r}: give a dictionary of whole numbers by name")
    return dict(marks or {})
