"""A page: one Arrow IPC record batch message, padded to whole blocks.

The zeros after the last buffer belong to the message's body, so a reader of the file steps from
page to page, and every page begins where direct I/O can read it.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adjoin.errors import OptionError
from adjoin.kernels.cutting import cut_groups, cut_rows, seal_messages
from adjoin.parts.rows import message_overhead, row_bytes

BLOCK_BYTES = 4096


@dataclass(frozen=True)
class SealedPages:
    """Pages as they go to disk, one after another in `data`."""

    data: NDArray[np.uint8]
    blocks: NDArray[np.int32]
    metadata_bytes: NDArray[np.int32]
    checksums: NDArray[np.uint64]


class PageCutter:
    """Decides which rows share a page."""

    def __init__(self, schema: pa.Schema, page_bytes: int, fill: float) -> None:
        self._page_bytes = page_bytes
        self._columns = len(schema)
        self._overhead_bytes = message_overhead(schema)
        self.keep_bytes = page_bytes - self._overhead_bytes
        self.fill_bytes = int(page_bytes * fill) - self._overhead_bytes

    def check_room(self) -> None:
        """Refuse pages that would hold metadata for the most part."""
        if self.fill_bytes < self._overhead_bytes:
            least = -(-4 * self._overhead_bytes // BLOCK_BYTES) * BLOCK_BYTES
            raise OptionError(
                f"page_bytes={self._page_bytes}: a page of {self._columns} columns has {self._overhead_bytes} "
                f"bytes of metadata; give page_bytes={least} and fill=0.8"
            )

    def cut(self, batch: pa.RecordBatch, *, more: bool) -> NDArray[np.int64]:
        """First rows of the pages, filled to the fill level, and where the last one ends.

        If `more` rows will follow, those that may share a page with them are left out.
        """
        starts = np.empty(batch.num_rows + 1, np.int64)
        pages = cut_rows(row_bytes(batch), self.fill_bytes, starts)
        starts[pages] = batch.num_rows
        return starts[: max(pages, 1)] if more else starts[: pages + 1]

    def cut_groups(self, batch: pa.RecordBatch, groups: NDArray[np.int64]) -> NDArray[np.int64]:
        """As `cut`, for rows of pages written again: see `kernels.cutting.cut_groups`."""
        starts = np.empty(batch.num_rows + 1, np.int64)
        pages = cut_groups(row_bytes(batch), groups, self.keep_bytes, self.fill_bytes, starts)
        starts[pages] = batch.num_rows
        return starts[: pages + 1]


def seal(batch: pa.RecordBatch, bounds: NDArray[np.int64]) -> SealedPages:
    """Serialize rows ``bounds[i]:bounds[i + 1]`` as page i."""
    rows = np.diff(bounds).tolist()
    slices = zip(bounds[:-1].tolist(), rows, strict=True)
    messages = [batch.slice(start, count).serialize() for start, count in slices]
    used = np.array([message.size for message in messages], np.int64)
    blocks = -(-used // BLOCK_BYTES)
    stops = np.cumsum(blocks) * BLOCK_BYTES
    starts = stops - blocks * BLOCK_BYTES
    data = np.empty(int(stops[-1]) if len(stops) else 0, np.uint8)
    target = data.data.cast("b")  # the format of Arrow buffers
    for message, start, end, stop in zip(
        messages, starts.tolist(), (starts + used).tolist(), stops.tolist(), strict=True
    ):
        target[start:end] = message
        data[end:stop] = 0
    metadata_bytes = np.empty(len(messages), np.int32)
    checksums = np.empty(len(messages), np.uint64)
    seal_messages(data, starts, stops, metadata_bytes, checksums)
    return SealedPages(data, blocks.astype(np.int32), metadata_bytes, checksums)
