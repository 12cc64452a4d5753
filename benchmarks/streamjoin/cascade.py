"""Four streams joined by a chain of three two-way joins: MINER is measured against this."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from adjoin import DINER


class Cascade:
    """DINER joins r1 with r2, the result with r3, and that with r4; each join gets a third of the memory."""

    def __init__(self, schemas: Mapping[str, pa.Schema], memory_bytes: int, **options: Any) -> None:
        third = memory_bytes // 3
        first = DINER(schemas["r1"], schemas["r2"], on="a", memory=third, **options)
        second = DINER(first.schema, schemas["r3"], on="b", memory=third, **options)
        third_join = DINER(second.schema, schemas["r4"], on="c", memory=third, **options)
        self._joins = (first, second, third_join)

    def push(self, name: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take rows of a relation; emit their matches over all joins."""
        stage = max(0, int(name[1:]) - 2)
        side = "left" if name == "r1" else "right"
        yield from self._behind(stage, self._joins[stage].push(side, batch))

    def _behind(self, stage: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The results of a join, passed through the joins after it."""
        if stage == len(self._joins) - 1:
            yield from batches
            return
        for batch in batches:
            yield from self._behind(stage + 1, self._joins[stage + 1].push("left", batch))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """End all relations."""
        for stage, join in enumerate(self._joins):
            yield from self._behind(stage, join.finish())

    def metrics(self) -> dict[str, Any]:
        """The metrics that can be added up."""
        names = ("blocks_flushed", "pages_read", "bytes_read", "peak_bytes", "memory_bytes")
        return {name: sum(join.metrics()[name] for join in self._joins) for name in names}

    def close(self) -> None:
        """Release files and memory."""
        for join in self._joins:
            join.close()
