"""External sort: any number of rows, sorted by one int64 column in bounded memory.

Rows are gathered up to a quarter of the memory, sorted, and spilled as a run; runs are merged block by
block, a bounded number of them at a time. The sort is stable.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adjoin.arrow.row_sizes import without_neighbors
from adjoin.master import files
from adjoin.master.source import split

_LARGEST_RUN_BYTES = 1 << 30  # string columns of one run stay far below the 2 GiB of their offsets
_SMALLEST_BLOCK_BYTES = 16 << 10
_LARGEST_BLOCK_BYTES = 4 << 20


@dataclass(frozen=True)
class Run:
    """Sorted rows in a temporary file, as record batch messages, and the offset of each message."""

    path: str
    offsets: list[int]

    @property
    def largest_bytes(self) -> int:
        """The length of the longest message."""
        return max(stop - start for start, stop in pairwise(self.offsets))


class ExternalSorter:
    """Sorts the rows of all batches that are added.

    Args:
        new_path: Returns the name of a new temporary file.
        schema: The schema of the batches.
        key_column: The int64 column to sort by.
        memory_bytes: The memory for sorting.
    """

    def __init__(
        self, new_path: Callable[[], str], schema: pa.Schema, key_column: str, memory_bytes: int
    ) -> None:
        self.schema = schema
        self.rows = 0
        self._new_path = new_path
        self._key_at = schema.get_field_index(key_column)
        self._run_bytes = min(memory_bytes // 4, _LARGEST_RUN_BYTES)
        self._block_bytes = min(max(memory_bytes // 512, _SMALLEST_BLOCK_BYTES), _LARGEST_BLOCK_BYTES)
        self._blocks_bytes = memory_bytes // 8
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_bytes = 0
        self._runs: list[Run] = []

    def add(self, batch: pa.RecordBatch) -> None:
        if self._gathered and self._gathered_bytes + batch.nbytes > self._run_bytes:
            self._runs.append(self._spill(self._sort_gathered()))
        self._gathered.append(batch)
        self._gathered_bytes += batch.nbytes
        self.rows += batch.num_rows

    def sorted(self) -> Iterator[pa.RecordBatch]:
        """All rows in order, in batches of about a block. Nothing can be added afterwards."""
        if not self._runs:
            yield from self._sort_gathered()
            return
        if self._gathered:
            self._runs.append(self._spill(self._sort_gathered()))
        while len(self._runs) > (fan_in := self._fan_in()):
            self._merge_pass(fan_in)
        yield from self._merge(self._runs)

    def _fan_in(self) -> int:
        """How many runs to merge at once: one block of each is loaded, and a round may copy them all."""
        block_bytes = max(self._block_bytes, *(run.largest_bytes for run in self._runs))
        return max(2, self._blocks_bytes // block_bytes)

    def close(self) -> None:
        """Remove what was spilled."""
        for run in self._runs:
            files.discard(run.path)
        self._runs.clear()

    def _sort_gathered(self) -> Iterator[pa.RecordBatch]:
        batches, self._gathered, self._gathered_bytes = self._gathered, [], 0
        if not batches:
            return
        rows = _concat(batches)
        batches.clear()
        yield from self._in_order(rows)

    def _spill(self, batches: Iterator[pa.RecordBatch]) -> Run:
        run = Run(self._new_path(), [0])
        file = files.NewFile(run.path)
        try:
            for batch in batches:
                for part in split(batch, 2 * self._block_bytes):
                    file.write((part if part is batch else without_neighbors(part)).serialize())
                    run.offsets.append(file.bytes)
        except BaseException:
            files.discard(run.path)
            raise
        finally:
            file.close()
        return run

    def _merge_pass(self, fan_in: int) -> None:
        """Replace each group of neighboring runs by a single run."""
        remaining, self._runs = self._runs, []
        while remaining:
            group, remaining = remaining[:fan_in], remaining[fan_in:]
            try:
                merged = self._spill(self._merge(group)) if len(group) > 1 else group[0]
            except BaseException:
                self._runs += group + remaining
                raise
            if len(group) > 1:
                for run in group:
                    files.discard(run.path)
            self._runs.append(merged)

    def _merge(self, runs: list[Run]) -> Iterator[pa.RecordBatch]:
        with ExitStack() as stack:
            cursors = [_Cursor(run, self.schema, self._key_at) for run in runs]
            for cursor in cursors:
                stack.callback(cursor.close)
            while cursors := [cursor for cursor in cursors if cursor.load()]:
                yield from self._in_order(_concat(_next_pieces(cursors)))

    def _in_order(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows sorted, a block at a time."""
        keys = _keys(rows, self._key_at)
        step = max(1, self._block_bytes * rows.num_rows // max(1, rows.nbytes))
        order = np.argsort(keys, kind="stable")
        for start in range(0, rows.num_rows, step):
            yield rows.take(pa.array(order[start : start + step]))


class _Cursor:
    """The unread rest of a run; only its current block is in memory."""

    def __init__(self, run: Run, schema: pa.Schema, key_at: int) -> None:
        self._run = run
        self._schema = schema
        self._key_at = key_at
        self._descriptor = files.open_to_read(run.path)
        self._block = 0
        self.rows: pa.RecordBatch | None = None
        self.keys: NDArray[np.int64] = np.empty(0, np.int64)

    def load(self) -> bool:
        """Load the next block if no rows are left; False at the end of the run."""
        if len(self.keys) == 0 and self.more:
            start, stop = self._run.offsets[self._block], self._run.offsets[self._block + 1]
            data = files.read_at(self._descriptor, self._run.path, start, stop - start)
            self.rows = pa.ipc.read_record_batch(pa.py_buffer(data), self._schema)
            self.keys = _keys(self.rows, self._key_at)
            self._block += 1
        return len(self.keys) > 0

    @property
    def more(self) -> bool:
        """Whether there are blocks after the current one."""
        return self._block + 1 < len(self._run.offsets)

    def take(self, count: int) -> pa.RecordBatch:
        """The next rows of the current block."""
        assert self.rows is not None
        taken = self.rows.slice(0, count)
        left = count < len(self.keys)
        self.rows, self.keys = (self.rows.slice(count) if left else None), self.keys[count:]
        return taken

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _next_pieces(cursors: list[_Cursor]) -> list[pa.RecordBatch]:
    """From each run, the rows that no unread block can precede, in the order of the runs.

    The bound is the lowest end of a loaded block, and the first run with that end sets it. This run may
    have more rows equal to the bound, so later runs hold theirs back; this keeps the sort stable.
    """
    limits = [int(cursor.keys[-1]) for cursor in cursors if cursor.more]
    if not limits:
        return [cursor.take(len(cursor.keys)) for cursor in cursors]
    bound = min(limits)
    setter = next(at for at, cursor in enumerate(cursors) if cursor.more and int(cursor.keys[-1]) == bound)
    counts = [
        int(np.searchsorted(cursor.keys, bound, "right" if at <= setter else "left"))
        for at, cursor in enumerate(cursors)
    ]
    return [cursor.take(count) for cursor, count in zip(cursors, counts, strict=True) if count]


def _keys(batch: pa.RecordBatch, key_at: int) -> NDArray[np.int64]:
    column = batch.column(key_at)
    return np.frombuffer(column.buffers()[1], np.int64, len(column), 8 * column.offset)


def _concat(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
