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
from adjoin.memory.arena import BLOCK_BYTES

_MAGIC = b"ARROW1"
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
_FOOTER_BATCHES = 3  # field of the Footer table that lists the record batches
_FOOTER_BLOCK = np.dtype([("offset", "<i8"), ("metadata", "<i4"), ("padding", "<i4"), ("body", "<i8")])
FILE_BYTES = 256 << 20
_MOST_OPEN_FILES = 64


@dataclass(frozen=True)
class DataFile:
    """A finished data file as a version names it.

    Attributes:
        name: Its name in the directory of data files.
        path: Where it is.
        bytes: Its length.
        header_bytes: What stands before the first page.
        footer_bytes: What stands after the last page.
        checksum: XXH64 of header and footer, one after the other.
        layout: The layout of its pages, counted in those of the version.
    """

    name: str
    path: str
    bytes: int
    header_bytes: int
    footer_bytes: int
    checksum: int
    layout: int = 0

    def verify_envelope(self) -> None:
        """Raise CorruptionError unless length, header and footer are what was written."""
        descriptor = files.open_to_read(self.path)
        try:
            size = os.fstat(descriptor).st_size
            if size != self.bytes:
                raise CorruptionError(f"{self.path} has {size} bytes, {self.bytes} were written")
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
    """Magic and schema message, padded to whole blocks."""
    message: bytes = schema.serialize().to_pybytes()
    total = -(-(8 + len(message)) // BLOCK_BYTES) * BLOCK_BYTES
    padded = message[8:] + bytes(total - 8 - len(message))
    return _MAGIC + b"\0\0" + message[:4] + struct.pack("<i", len(padded)) + padded


def footer_of(
    schema: pa.Schema, offsets: NDArray[np.int64], metadata: NDArray[np.int32], bodies: NDArray[np.int64]
) -> bytes:
    """The footer that Arrow writes for an empty file, with the list of pages appended to it."""
    sink = pa.BufferOutputStream()
    pa.ipc.new_file(sink, schema).close()
    empty = sink.getvalue().to_pybytes()
    (length,) = struct.unpack_from("<i", empty, len(empty) - 10)
    footer = bytearray(empty[-10 - length : -10])
    table = struct.unpack_from("<i", footer, 0)[0]
    vtable = table - struct.unpack_from("<i", footer, table)[0]
    field = table + struct.unpack_from("<H", footer, vtable + 4 + 2 * _FOOTER_BATCHES)[0]
    # The count of the vector stands four bytes before its elements, which need alignment to eight.
    footer += bytes((4 - len(footer)) % 8)
    struct.pack_into("<I", footer, field, len(footer) - field)
    blocks = np.zeros(len(offsets), _FOOTER_BLOCK)
    blocks["offset"], blocks["metadata"], blocks["body"] = offsets, metadata, bodies
    footer += struct.pack("<I", len(offsets)) + blocks.tobytes()
    return _END_OF_STREAM + bytes(footer) + struct.pack("<i", len(footer)) + _MAGIC


class DataFileWriter:
    """One data file in the making."""

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
        """Write the pages; return the block at which each begins."""
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
    """Writes pages into data files, a new one whenever the last is full, and notes their index."""

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
        """Write sealed pages of rows with these keys; return their index (files numbered from 0)."""
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
        """Write sealed pages; return the number of their file, and where each begins in it."""
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

    def close(self) -> None:
        if self._current is not None:
            self._current.close()


def read_pages(
    stored: StoredColumns, data_files: Sequence[DataFile], index: PageIndex, wanted: NDArray[np.int64]
) -> pa.Table:
    """Read and verify the wanted pages (ordinals, ascending); one chunk of the table per page.

    Not for the hot path: it allocates, and knows no device and no plan.
    """
    if len(stored.layouts) == 1:
        return stored.as_of_today(
            _read_alike(stored.layouts[0], data_files, index, wanted), stored.layouts[0]
        )
    layouts = np.array([file.layout for file in data_files], np.int64)[index.file[wanted]]
    batches: list[pa.RecordBatch | None] = [None] * len(wanted)
    for number in np.unique(layouts).tolist():
        layout, chosen = stored.layouts[number], np.flatnonzero(layouts == number)
        table = stored.as_of_today(_read_alike(layout, data_files, index, wanted[chosen]), layout)
        begins = np.cumsum(index.rows[wanted[chosen]], dtype=np.int64) - index.rows[wanted[chosen]]
        for place, begin in zip(chosen.tolist(), begins.tolist(), strict=True):
            rows = table.slice(begin, int(index.rows[wanted[place]]))
            batches[place] = rows.combine_chunks().to_batches()[0]
    return pa.Table.from_batches(batches, schema=stored.schema)


def _read_alike(
    layout: PageLayout, data_files: Sequence[DataFile], index: PageIndex, wanted: NDArray[np.int64]
) -> pa.Table:
    """As `read_pages`, for pages of one layout, in the columns of that layout."""
    schema = layout.schema
    header = header_of(schema)[8:]
    blocks = index.blocks[wanted].astype(np.int64)
    stops = np.cumsum(blocks) * BLOCK_BYTES
    starts = stops - blocks * BLOCK_BYTES
    total = int(stops[-1]) if len(stops) else 0
    # The stream that Arrow decodes is schema, pages, end mark; pages stay aligned to eight bytes.
    buffer = pa.allocate_buffer(len(header) + total + len(_END_OF_STREAM))
    stream = np.frombuffer(buffer, np.uint8)
    stream[: len(header)] = np.frombuffer(header, np.uint8)
    stream[len(header) + total :] = np.frombuffer(_END_OF_STREAM, np.uint8)
    pages = stream[len(header) : len(header) + total]
    _read_runs(data_files, index, wanted, starts, stops, pages)
    _verify_pages(data_files, index, wanted, pages, starts, stops)
    try:
        table = pa.ipc.open_stream(buffer).read_all()
    except (pa.ArrowException, OSError) as error:
        path = data_files[int(index.file[wanted[0]])].path
        raise CorruptionError(
            f"{path}: pages do not hold the columns that the manifest says ({error}); restore the manifest"
        ) from error
    rows = int(index.rows[wanted].sum(dtype=np.int64))
    if table.num_rows != rows:
        path = data_files[int(index.file[wanted[0]])].path
        raise CorruptionError(f"{path}: pages hold {table.num_rows} rows, the index says {rows}")
    return table


def read_sealed(data_files: Sequence[DataFile], index: PageIndex, wanted: NDArray[np.int64]) -> SealedPages:
    """Read and verify the wanted pages (ordinals, ascending) as they are on disk."""
    blocks = index.blocks[wanted].astype(np.int64)
    stops = np.cumsum(blocks) * BLOCK_BYTES
    starts = stops - blocks * BLOCK_BYTES
    data = np.empty(int(blocks.sum()) * BLOCK_BYTES, np.uint8)
    _read_runs(data_files, index, wanted, starts, stops, data)
    _verify_pages(data_files, index, wanted, data, starts, stops)
    # A message begins with a mark and the length of its metadata, of four bytes each.
    metadata = 8 + data.view("<i4")[starts // 4 + 1]
    return SealedPages(data, index.blocks[wanted], metadata.astype(np.int32), index.checksum[wanted])


def _read_runs(
    data_files: Sequence[DataFile],
    index: PageIndex,
    wanted: NDArray[np.int64],
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
    target: NDArray[np.uint8],
) -> None:
    """Read neighbouring pages with one call each; many small changes leave pages in many files."""
    if len(wanted) == 0:
        return
    file, block, blocks = index.file[wanted], index.block[wanted], index.blocks[wanted]
    breaks = (file[1:] != file[:-1]) | (block[1:] != block[:-1] + blocks[:-1])
    heads = np.flatnonzero(np.concatenate([[True], breaks]))
    tails = np.append(heads[1:], len(wanted)) - 1
    opened: dict[int, int] = {}
    view = target.data
    try:
        for head, tail in zip(heads.tolist(), tails.tolist(), strict=True):
            ordinal = int(file[head])
            path = data_files[ordinal].path
            if ordinal not in opened:
                if len(opened) == _MOST_OPEN_FILES:
                    os.close(opened.pop(next(iter(opened))))
                opened[ordinal] = files.open_to_read(path)
            place = int(block[head]) * BLOCK_BYTES
            files.read_into(opened[ordinal], path, place, view[int(starts[head]) : int(stops[tail])])
    finally:
        for descriptor in opened.values():
            os.close(descriptor)


def _verify_pages(
    data_files: Sequence[DataFile],
    index: PageIndex,
    wanted: NDArray[np.int64],
    pages: NDArray[np.uint8],
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
) -> None:
    bad = np.flatnonzero(hash_ranges(pages, starts, stops) != index.checksum[wanted])
    if len(bad):
        page = int(wanted[bad[0]])
        path, start = data_files[int(index.file[page])].path, int(index.block[page]) * BLOCK_BYTES
        raise CorruptionError(
            f"{path}: page {page} at byte {start} "
            f"is damaged (checksum differs), {len(bad)} damaged in all; restore the file from a copy"
        )
