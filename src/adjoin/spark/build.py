"""Build a master from a DataFrame: executors sort and write, the driver commits."""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from adjoin.errors import OptionError
from adjoin.master.build import (
    BuildOptions,
    Layout,
    PageBuilder,
    Written,
    commit_first,
    new_master,
    refuse_null_keys,
)
from adjoin.master.progress import Progress
from adjoin.master.source import bounded, plain_schema
from adjoin.master.versions import Home
from adjoin.memory.arena import BLOCK_BYTES
from adjoin.spark.jobs import run
from adjoin.spark.naming import by_place, found_names
from adjoin.spark.ranges import PART_COLUMN, Encoder, send, survey, task_count
from adjoin.spark.types import arrow_schema_for_spark, nullable

_ROWS_PER_TASK = 250_000


def build(source: DataFrame, key: str | Sequence[str], home: Home, options: BuildOptions) -> None:
    """Commit the rows as version 1; see `Master.build`.

    How it works: rows are sent to tasks by key range. Each task sorts its rows in bounded memory, writes
    pages to its own data files and returns their index; the driver concatenates the indexes and commits.
    Files of failed or repeated attempts appear in no result and are removed.
    """
    if source.isStreaming:
        raise OptionError(
            "source is a streaming DataFrame; build from a batch DataFrame, and change the master in "
            "foreachBatch with Master.apply"
        )
    schema = plain_schema(arrow_schema_for_spark(nullable(source.schema), "UTC", False))
    key = found_names(source, [key] if isinstance(key, str) else key, schema.names)
    layout = Layout.of(schema, key, options)
    names = layout.schema.names
    rows = by_place(source)
    marker = uuid.uuid4().hex[:16]
    with new_master(home):
        try:
            keys = rows.select(*(rows.columns[names.index(name)] for name in layout.codec.columns))
            found = survey(keys, Encoder(layout.codec, layout.schema, layout.codec.columns))
            refuse_null_keys(layout, found.null_rows, found.rows)
            cuts = found.cuts(task_count(found.rows, _ROWS_PER_TASK))
            sent = send(rows, Encoder(layout.codec, layout.schema, names), cuts).drop(PART_COLUMN)
            parts: list[Written] = run(sent, BuildTask(home.path, layout, marker).write)
            commit_first(home, layout, sorted(parts, key=lambda part: int(part.index.first[0])))
        finally:
            home.discard_unless_committed(1, home.marked(marker))


@dataclass(frozen=True)
class BuildTask:
    """What a task needs to know to write its part."""

    path: str
    layout: Layout
    marker: str

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Written]:
        """Sort the rows and write them as pages."""
        builder = PageBuilder(Home(self.path), self.layout, Progress(False), self.marker)
        try:
            rows = null_rows = 0
            limit_bytes = max(BLOCK_BYTES, self.layout.options.memory_bytes // 16)
            named = (batch.rename_columns(self.layout.schema.names) for batch in batches)
            for batch in bounded(named, self.layout.schema, limit_bytes):
                rows += batch.num_rows
                null_rows += builder.add(batch)
            refuse_null_keys(self.layout, null_rows, rows)
            if rows > null_rows:
                yield builder.finish()
        finally:
            builder.close()
