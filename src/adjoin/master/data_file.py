"""Data files: plain Arrow IPC files whose record batches are pages at block boundaries."""

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adjoin.errors import CorruptionError
from adjoin.kernels.hashing import hash_bytes, hash_ranges
from adjoin.master import files
from adjoin.master.index import PageIndex
from adjoin.master.layout import PageLayout, StoredColumns
from adjoin.master.page import SealedPages
from adjoin.memory.mapped_file import BLOCK_BYTES, whole_blocks

_MAGIC = b"ARROW1"
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
_FOOTER_BATCHES = 3  # the field of the Footer table that lists the record batches
_FOOTER_BLOCK = np.dtype([("offset", "<i8"), ("metadata", "<i4"), ("padding", "<i4"), ("body", "<i8")])
FILE_BYTES = 256 << 20
_MOST_OPEN_FILES = 64


@dataclass(frozen=True)
class DataFile:
    """A finished data file, as the manifest describes it.

    Attributes:
        name: Its name in the directory of data files.
        path: Its full path.
        bytes: Its length.
        header_bytes: The length of what precedes the first page.
        footer_bytes: The length of what follows the last page.
        checksum: XXH64 of header and footer together.
        layout: The layout of its pages, as a position in the layouts of the manifest.
    """

    name: str
    path: str
    bytes: int
    header_bytes: int
    footer_bytes: int
    checksum: int
    layout: int = 0

    def verify_envelope(self) -> None:
        """Raise CorruptionError unless length, header and footer are as they were written."""
        descriptor = files.open_to_read(self.path)
        try:
            size = os.fstat(descriptor).st_size
            if size != self.bytes:
                raise CorruptionError(
                    f"{self.path} has {size} bytes, but {self.bytes} were written; restore it from a copy"
                )
            header = files.read_at(descriptor, self.path, 0, self.header_bytes)
            footer = files.read_at(descriptor, self.path, self.bytes - self.footer_bytes, self.footer_bytes)
        finally:
            os.close(descriptor)
        if checksum_of(header + footer) != self.checksum:
            raise CorruptionError(
                f"{self.path}: header or footer is damaged (checksum differs); restore the file from a copy"
            )


def checksum_of(data: bytes | bytearray | pa.Buffer) -> int:
    array = np.frombuffer(data, np.uint8)
    return int(hash_bytes(array, 0, len(array)))


def header_of(schema: pa.Schema) -> bytes:
    """Magic bytes and schema message, padded to whole blocks."""
    message: bytes = schema.serialize().to_pybytes()
    total = whole_blocks(8 + len(message))
    padded = message[8:] + bytes(total - 8 - len(message))
    return _MAGIC + b"\0\0" + message[:4] + struct.pack("<i", len(padded)) + padded


def footer_of(
    schema: pa.Schema, offsets: NDArray[np.int64], metadata: NDArray[np.int32], bodies: NDArray[np.int64]
) -> bytes:
    """The footer that Arrow writes for an empty file, extended by the list of pages."""
    sink = pa.BufferOutputStream()
    pa.ipc.new_file(sink, schema).close()
    empty = sink.getvalue().to_pybytes()
    (length,) = struct.unpack_from("<i", empty, len(empty) - 10)
    footer = bytearray(empty[-10 - length : -10])
    table = struct.unpack_from("<i", footer, 0)[0]
    vtable = table - struct.unpack_from("<i", footer, table)[0]
    field = table + struct.unpack_from("<H", footer, vtable + 4 + 2 * _FOOTER_BATCHES)[0]
    # The length of a vector precedes its elements by four bytes, and the elements must be aligned to eight.
    footer += bytes((4 - len(footer)) % 8)
    struct.pack_into("<I", footer, field, len(footer) - field)
    blocks = np.zeros(len(offsets), _FOOTER_BLOCK)
    blocks["offset"], blocks["metadata"], blocks["body"] = offsets, metadata, bodies
    footer += struct.pack("<I", len(offsets)) + blocks.tobytes()
    return _END_OF_STREAM + bytes(footer) + struct.pack("<i", len(footer)) + _MAGIC


class DataFileWriter:
    """A data file being written."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self.path = path
        self._schema = schema
        self._header = header_of(schema)
        self._blocks: list[NDArray[np.int64]] = []
        self._metadata: list[NDArray[np.int32]] = []
        self._file = files.NewFile(self.path)
        try:
            self._file.write(self._header)
        except BaseException:
            self._file.close()
            raise

    @property
    def bytes(self) -> int:
        return self._file.bytes

    def append(self, pages: SealedPages) -> NDArray[np.int32]:
        """Write the pages; returns the block at which each begins."""
        ends = self.bytes // BLOCK_BYTES + np.cumsum(pages.blocks)
        self._file.write(pages.data)
        self._blocks.append(pages.blocks.astype(np.int64))
        self._metadata.append(pages.metadata_bytes)
        return (ends - pages.blocks).astype(np.int32)

    def finish(self) -> DataFile:
        blocks = np.concatenate(self._blocks)
        metadata = np.concatenate(self._metadata)
        offsets = len(self._header) + (np.cumsum(blocks) - blocks) * BLOCK_BYTES
        footer = footer_of(self._schema, offsets, metadata, blocks * BLOCK_BYTES - metadata)
        self._file.write(footer)
        self._file.finish()
        checksum = checksum_of(self._header + footer)
        return DataFile(
            os.path.basename(self.path), self.path, self.bytes, len(self._header), len(footer), checksum
        )

    def close(self) -> None:
        self._file.close()


class PageWriter:
    """Writes pages into data files, starting a new file whenever one is full, and makes their index."""

    def __init__(
        self, directory: str, schema: pa.Schema, file_bytes: int = FILE_BYTES, marker: str = ""
    ) -> None:
        self.directory = directory
        self.schema = schema
        self.marker = marker
        self.paths: list[str] = []
        self._file_bytes = file_bytes
        self._current: DataFileWriter | None = None
        self._finished: list[DataFile] = []

    def write(self, keys: NDArray[np.int64], bounds: NDArray[np.int64], pages: SealedPages) -> PageIndex:
        """Write sealed pages of rows with these keys; returns their index (files numbered from 0)."""
        file, block = self.append(pages)
        return PageIndex(
            first=keys[bounds[:-1]],
            last=keys[bounds[1:] - 1],
            file=np.full(len(block), file, np.int32),
            block=block,
            blocks=pages.blocks,
            rows=np.diff(bounds).astype(np.int32),
            checksum=pages.checksums,
        )

    def append(self, pages: SealedPages) -> tuple[int, NDArray[np.int32]]:
        """Write sealed pages; returns the number of their file, and the block at which each begins."""
        if self._current is None:
            self.paths.append(os.path.join(self.directory, files.new_name(".arrow", self.marker)))
            self._current = DataFileWriter(self.paths[-1], self.schema)
        file, block = len(self._finished), self._current.append(pages)
        if self._current.bytes >= self._file_bytes:
            self._roll()
        return file, block

    def _roll(self) -> None:
        if self._current is not None:
            self._finished.append(self._current.finish())
            self._current = None

    def finish(self) -> list[DataFile]:
        self._roll()
        if self._finished:
            files.sync_dir(self.directory)
        return self._finished

    def discard(self) -> None:
        """Stop writing, and remove all files; not after `finish`."""
        self.close()
        for path in self.paths:
            files.discard(path)

    def close(self) -> None:
        if self._current is not None:
            self._current.close()


def read_pages(
    stored: StoredColumns, data_files: Sequence[DataFile], index: PageIndex, wanted: NDArray[np.int64]
) -> pa.Table:
    """Read and verify the wanted pages (ordinals, ascending), as a table with one chunk per page.

    Not for the hot path: it allocates memory, and uses neither a device nor a read plan.
    """
    if len(stored.layouts) == 1:
        return stored.from_layout(
            _read_alike(stored.layouts[0], data_files, index, wanted), stored.layouts[0]
        )
    layouts = np.array([file.layout for file in data_files], np.int64)[index.file[wanted]]
    batches: list[pa.RecordBatch | None] = [None] * len(wanted)
    for number in np.unique(layouts).tolist():
        layout, chosen = stored.layouts[number], np.flatnonzero(layouts == number)
        table = stored.from_layout(_read_alike(layout, data_files, index, wanted[chosen]), layout)
        begins = np.cumsum(index.rows[wanted[chosen]], dtype=np.int64) - index.rows[wanted[chosen]]
        for place, begin in zip(chosen.tolist(), begins.tolist(), strict=True):
            rows = table.slice(begin, int(index.rows[wanted[place]]))
            batches[place] = rows.combine_chunks().to_batches()[0]
    return pa.Table.from_batches(batches, schema=stored.schema)


@dataclass(frozen=True)
class _Wanted:
    """Pages to read into one buffer, one after another.

    Attributes:
        files: The data files.
        index: The index.
        pages: Their ordinals, ascending.
        starts: Where each page begins in the buffer.
        stops: Where each page ends in the buffer.
    """

    files: Sequence[DataFile]
    index: PageIndex
    pages: NDArray[np.int64]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]

    @classmethod
    def of(cls, data_files: Sequence[DataFile], index: PageIndex, pages: NDArray[np.int64]) -> "_Wanted":
        lengths = index.blocks[pages].astype(np.int64) * BLOCK_BYTES
        stops = np.cumsum(lengths)
        return cls(data_files, index, pages, stops - lengths, stops)

    @property
    def bytes(self) -> int:
        return int(self.stops[-1]) if len(self.stops) else 0

    def path_of(self, at: int) -> str:
        """The path of the file that holds a page, given the page's position here."""
        return self.files[int(self.index.file[self.pages[at]])].path

    def read_into(self, buffer: NDArray[np.uint8]) -> None:
        """Read and verify the pages."""
        self._read_runs(buffer.data)
        self._verify(buffer)

    def _read_runs(self, buffer: memoryview) -> None:
        """Read neighboring pages with a single call; many small changes spread pages over many files."""
        if len(self.pages) == 0:
            return
        index, pages = self.index, self.pages
        file, block, blocks = index.file[pages], index.block[pages], index.blocks[pages]
        breaks = (file[1:] != file[:-1]) | (block[1:] != block[:-1] + blocks[:-1])
        heads = np.flatnonzero(np.concatenate([[True], breaks]))
        tails = np.append(heads[1:], len(pages)) - 1
        opened: dict[int, int] = {}
        try:
            for head, tail in zip(heads.tolist(), tails.tolist(), strict=True):
                ordinal, path = int(file[head]), self.path_of(head)
                if ordinal not in opened:
                    if len(opened) == _MOST_OPEN_FILES:
                        os.close(opened.pop(next(iter(opened))))
                    opened[ordinal] = files.open_to_read(path)
                place = int(block[head]) * BLOCK_BYTES
                target = buffer[int(self.starts[head]) : int(self.stops[tail])]
                files.read_into(opened[ordinal], path, place, target)
        finally:
            for descriptor in opened.values():
                os.close(descriptor)

    def _verify(self, buffer: NDArray[np.uint8]) -> None:
        hashes = hash_ranges(buffer, self.starts, self.stops)
        damaged = np.flatnonzero(hashes != self.index.checksum[self.pages])
        if len(damaged):
            page = int(self.pages[damaged[0]])
            start = int(self.index.block[page]) * BLOCK_BYTES
            raise CorruptionError(
                f"{self.path_of(int(damaged[0]))}: page {page} at byte {start} is damaged (checksum "
                f"differs), the first of {len(damaged)} damaged pages; restore the file from a copy"
            )


def _read_alike(
    layout: PageLayout, data_files: Sequence[DataFile], index: PageIndex, pages: NDArray[np.int64]
) -> pa.Table:
    """Like `read_pages`, for pages of one layout, with the columns of that layout."""
    wanted = _Wanted.of(data_files, index, pages)
    header = header_of(layout.schema)[8:]
    end = len(header) + wanted.bytes
    # Arrow decodes a stream of schema, pages and end marker; pages stay aligned to eight bytes.
    buffer = pa.allocate_buffer(end + len(_END_OF_STREAM))
    stream = np.frombuffer(buffer, np.uint8)
    stream[: len(header)] = np.frombuffer(header, np.uint8)
    stream[end:] = np.frombuffer(_END_OF_STREAM, np.uint8)
    wanted.read_into(stream[len(header) : end])
    try:
        table = pa.ipc.open_stream(buffer).read_all()
    except (pa.ArrowException, OSError) as error:
        raise CorruptionError(
            f"{wanted.path_of(0)}: pages do not have the columns that the manifest says ({error}); "
            "restore the manifest from a copy"
        ) from error
    rows = int(index.rows[pages].sum(dtype=np.int64))
    if table.num_rows != rows:
        raise CorruptionError(
            f"{wanted.path_of(0)}: pages have {table.num_rows} rows, but the index says {rows}; "
            "restore the index from a copy"
        )
    return table


def read_sealed(data_files: Sequence[DataFile], index: PageIndex, pages: NDArray[np.int64]) -> SealedPages:
    """Read and verify pages (ordinals, ascending), and return them as they are on disk."""
    wanted = _Wanted.of(data_files, index, pages)
    data = np.empty(wanted.bytes, np.uint8)
    wanted.read_into(data)
    # A message begins with a marker and the length of its metadata, of four bytes each.
    metadata = 8 + data.view("<i4")[wanted.starts // 4 + 1]
    return SealedPages(data, index.blocks[pages], metadata.astype(np.int32), index.checksum[pages])
