"""A page: one Arrow IPC record batch message, padded to whole blocks.

The zeros after the last buffer belong to the message's body, so a reader of the file steps from
page to page, and every page begins where direct I/O can read it.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adjoin.arrow.row_sizes import message_of, message_overhead, row_bytes
from adjoin.errors import OptionError
from adjoin.kernels.cutting import cut_groups, cut_rows, seal_messages
from adjoin.memory.mapped_file import BLOCK_BYTES, whole_blocks


@dataclass(frozen=True)
class SealedPages:
    """Pages as they are written to disk, concatenated in `data`."""

    data: NDArray[np.uint8]
    blocks: NDArray[np.int32]
    metadata_bytes: NDArray[np.int32]
    checksums: NDArray[np.uint64]


@dataclass(frozen=True)
class Cuts:
    """How rows are cut into pages: page i has rows ``bounds[i]:bounds[i + 1]`` and at most ``bytes[i]``."""

    bounds: NDArray[np.int64]
    bytes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.bytes)

    def first(self, pages: int) -> "Cuts":
        return Cuts(self.bounds[: pages + 1], self.bytes[:pages])

    @property
    def rows(self) -> int:
        """The number of rows in the pages."""
        return int(self.bounds[-1])


class PageCutter:
    """Decides which rows share a page."""

    def __init__(self, schema: pa.Schema, page_bytes: int, fill: float) -> None:
        self._page_bytes = page_bytes
        self._fill = fill
        self._columns = len(schema)
        self._overhead_bytes = message_overhead(schema)
        self.keep_bytes = page_bytes - self._overhead_bytes
        self.fill_bytes = int(page_bytes * fill) - self._overhead_bytes

    def check_room(self) -> None:
        """Refuse a fill level at which most of a page would be metadata."""
        if self.fill_bytes < self._overhead_bytes:
            raise OptionError(
                f"fill={self._fill} is too low: the metadata of {self._columns} columns takes "
                f"{self._overhead_bytes} of the {self._page_bytes} bytes of a page; give fill=0.8"
            )

    def cut(self, batch: pa.RecordBatch, *, more: bool) -> Cuts:
        """Cut rows into pages of the fill level; if `more` rows will follow, leave out the last page."""
        sizes = row_bytes(batch)
        starts = np.full(batch.num_rows + 1, batch.num_rows)
        pages = cut_rows(sizes, self.fill_bytes, starts)
        return self._cuts(sizes, starts, pages - 1 if more else pages)

    def cut_groups(self, batch: pa.RecordBatch, groups: NDArray[np.int64]) -> Cuts:
        """Like `cut`, for rows of pages that are rewritten; see `adjoin.kernels.cutting.cut_groups`."""
        sizes = row_bytes(batch)
        starts = np.full(batch.num_rows + 1, batch.num_rows)
        pages = cut_groups(sizes, groups, self.keep_bytes, self.fill_bytes, starts)
        return self._cuts(sizes, starts, pages)

    def _cuts(self, sizes: NDArray[np.int64], starts: NDArray[np.int64], pages: int) -> Cuts:
        if pages < 1:
            return Cuts(np.zeros(1, np.int64), np.zeros(0, np.int64))
        ends = np.concatenate([[0], np.cumsum(sizes)])[starts[: pages + 1]]
        return Cuts(starts[: pages + 1], np.diff(ends) + self._overhead_bytes)


def roomy_page_bytes(schema: pa.Schema, page_bytes: int) -> int:
    """The page size, raised if need be so that metadata takes at most a quarter of it."""
    return max(page_bytes, whole_blocks(4 * message_overhead(schema)))


def seal(batch: pa.RecordBatch, cuts: Cuts) -> SealedPages:
    """Serialize rows ``bounds[i]:bounds[i + 1]`` as page i."""
    messages = [
        message_of(batch.slice(start, stop - start), limit)
        for start, stop, limit in zip(
            cuts.bounds[:-1].tolist(),
            cuts.bounds[1:].tolist(),
            whole_blocks(cuts.bytes).tolist(),
            strict=True,
        )
    ]
    used = np.array([message.size for message in messages], np.int64)
    lengths = whole_blocks(used)
    stops = np.cumsum(lengths)
    starts = stops - lengths
    data = np.zeros(int(stops[-1]) if len(stops) else 0, np.uint8)
    target = data.data.cast("b")  # the format of Arrow buffers
    for message, start, end in zip(messages, starts.tolist(), (starts + used).tolist(), strict=True):
        target[start:end] = message
    metadata_bytes = np.empty(len(messages), np.int32)
    checksums = np.empty(len(messages), np.uint64)
    seal_messages(data, starts, stops, metadata_bytes, checksums)
    return SealedPages(data, (lengths // BLOCK_BYTES).astype(np.int32), metadata_bytes, checksums)
