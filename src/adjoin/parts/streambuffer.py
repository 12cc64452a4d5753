"""Stream rows that wait: some for their turn, some for pages from disk."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from adjoin.kernels.grouping import count_groups, group_pairs
from adjoin.kernels.types import Array


def compact(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, without a hold on memory beyond its own rows."""
    if batch.get_total_buffer_size() <= batch.nbytes + 64 * batch.num_columns:
        return batch
    columns = [pa.concat_arrays([column, column.slice(0, 0)]) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


@dataclass
class Rows:
    """Stream rows and what is known of each.

    Attributes:
        batch: The rows.
        arrived: When each arrived, in seconds.
        due: When each must be answered, in seconds (infinity: no deadline).
        low: Least master key that matches each row, encoded.
        high: Greatest master key that matches it (the same array for equality).
        matched: Whether a match was found already.
    """

    batch: pa.RecordBatch
    arrived: Array
    due: Array
    low: Array
    high: Array
    matched: Array

    state_bytes = 41

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    @property
    def waiting_bytes(self) -> int:
        """Bytes that these rows take while they wait, and once more their widest column to join the parts."""
        widest = max((column.nbytes for column in self.batch.columns), default=0)
        return int(self.batch.nbytes) + widest + len(self) * self.state_bytes

    def select(self, rows: Array) -> "Rows":
        low = self.low[rows]
        return Rows(
            self.batch.take(pa.array(rows)),
            self.arrived[rows],
            self.due[rows],
            low,
            low if self.high is self.low else self.high[rows],
            self.matched[rows],
        )


class InputBuffer:
    """Rows that arrived and were not looked at yet, served by the nearest deadline."""

    row_bytes = 16

    def __init__(self) -> None:
        self._parts: list[tuple[pa.RecordBatch, Array, Array]] = []
        self.rows = 0
        self.bytes = 0
        self.earliest_due = np.inf

    def cost(self, batch: pa.RecordBatch) -> int:
        """Bytes that the batch takes here, and once more when parts become one."""
        return 2 * int(batch.nbytes) + batch.num_rows * self.row_bytes

    def add(self, batch: pa.RecordBatch, arrived: Array, due: Array) -> None:
        self._parts.append((batch, arrived, due))
        self._recount()

    def take(self, rows: int) -> tuple[pa.RecordBatch, Array, Array]:
        """Remove up to `rows` rows, those whose deadline is nearest; the oldest among equals."""
        if len(self._parts) == 1 and self.rows <= rows:
            taken = self._parts[0]
            self._parts = []
        else:
            batch = pa.concat_batches([part[0] for part in self._parts])
            arrived = np.concatenate([part[1] for part in self._parts])
            due = np.concatenate([part[2] for part in self._parts])
            taken, self._parts = (batch, arrived, due), []
            if self.rows > rows:
                order = np.argsort(due, kind="stable")
                taken, rest = (
                    (batch.take(pa.array(chosen)), arrived[chosen], due[chosen])
                    for chosen in (order[:rows], order[rows:])
                )
                self._parts = [rest]
        self._recount()
        return taken

    def _recount(self) -> None:
        self.rows = sum(part[0].num_rows for part in self._parts)
        self.bytes = sum(self.cost(part[0]) for part in self._parts)
        self.earliest_due = min((part[2].min() for part in self._parts if len(part[2])), default=np.inf)


class StreamBuffer:
    """Rows that wait for pages, with the inverted index: for every such page, the rows that want it."""

    pair_bytes = 16
    wanted_page_bytes = 80
    pair_cost = pair_bytes + wanted_page_bytes
    """Most that one more pair costs: the pair, sorted and joined with others, and its page in a read plan."""

    def __init__(self, pages: int) -> None:
        self._pages = pages
        self._parts: list[Rows] = []
        self._pairs: list[Array] = []
        self.rows = 0
        self.pairs = 0
        self.stream_bytes = 0
        self.earliest_due = np.inf

    @property
    def inverted_bytes(self) -> int:
        return self._inverted_bytes(self.pairs)

    def _inverted_bytes(self, pairs: int) -> int:
        return pairs * self.pair_bytes + min(pairs, self._pages) * self.wanted_page_bytes

    def cost_with(self, rows: Rows, pairs: Array) -> tuple[int, int]:
        """Bytes of the buffer and of the inverted index once these are added."""
        return self.stream_bytes + rows.waiting_bytes, self._inverted_bytes(self.pairs + len(pairs))

    @property
    def wanted_pages(self) -> int:
        """At most so many pages are to be read."""
        return min(self.pairs, self._pages)

    def add(self, rows: Rows, pairs: Array) -> None:
        """Rows that wait; a pair is `page << 32 | row`, rows counted from those held already."""
        self._parts.append(rows)
        self._pairs.append(pairs + self.rows)
        self.rows += len(rows)
        self.pairs += len(pairs)
        self.stream_bytes += rows.waiting_bytes
        self.earliest_due = min(self.earliest_due, rows.due.min(initial=np.inf))

    def join_parts(self) -> tuple[Rows, "InvertedIndex"]:
        """All rows as one, and the inverted index over them; the buffer is empty afterwards."""
        parts, all_pairs = self._parts, self._pairs
        self.__init__(self._pages)  # type: ignore[misc]
        equality = parts[0].high is parts[0].low
        low = np.concatenate([part.low for part in parts])
        high = low if equality else np.concatenate([part.high for part in parts])
        arrived = np.concatenate([part.arrived for part in parts])
        due = np.concatenate([part.due for part in parts])
        matched = np.concatenate([part.matched for part in parts])
        columns = [list(part.batch.columns) for part in parts]
        schema = parts[0].batch.schema
        del parts
        joined = []
        for i in range(len(schema)):
            joined.append(pa.concat_arrays([column[i] for column in columns]))
            for column in columns:
                column[i] = None
        batch = pa.RecordBatch.from_arrays(joined, schema=schema)
        return Rows(batch, arrived, due, low, high, matched), InvertedIndex(np.concatenate(all_pairs))


class InvertedIndex:
    """For every wanted page, the rows that want it.

    Attributes:
        pairs: `page << 32 | row`, sorted.
        pages: The wanted pages, ascending.
        begin: Where each page's pairs begin, one entry more than pages.
    """

    def __init__(self, pairs: Array) -> None:
        pairs.sort()
        self.pairs = pairs
        self.pages, self.begin = group_pairs(pairs, count_groups(pairs))

    def check_invariants(self) -> None:
        assert (np.diff(self.pairs) > 0).all()
        assert (np.diff(self.pages) > 0).all()
        assert self.begin[0] == 0
        assert self.begin[-1] == len(self.pairs)
