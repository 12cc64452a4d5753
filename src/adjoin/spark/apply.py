"""Apply a DataFrame of changes: executors rewrite the pages they touch, the driver commits."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame

from adjoin.errors import NullKeyError, OptionError
from adjoin.master.apply import ApplyOptions, Base, commit_next, rewrite, with_new_columns
from adjoin.master.apply import apply as apply_here
from adjoin.master.backends import mover_for
from adjoin.master.changes import OPERATION_COLUMN, check_names
from adjoin.master.evolve import refuse_other
from adjoin.master.index import PageIndex
from adjoin.master.manifest import Manifest
from adjoin.master.master import Master
from adjoin.master.rewriter import Rewritten
from adjoin.master.sequence import sequence_type
from adjoin.master.source import plain_schema
from adjoin.master.versions import Home
from adjoin.spark.jobs import fetch, kept, run
from adjoin.spark.naming import by_place, found_name, found_names
from adjoin.spark.ranges import PART_COLUMN, Encoder, send, survey, task_count
from adjoin.spark.types import arrow_schema_for_spark, from_spark, stream_schema

_ROWS_PER_TASK = 50_000
_FEW_ROWS = 50_000
_FEW_BYTES = 8 << 20


def apply(home: Home, base: Base, changes: DataFrame, options: ApplyOptions) -> int | None:
    """Commit the revision after `base` and return its version, None if nothing changes; see `Master.apply`.

    How it works: changes are sent to tasks by key range, cut so that no page is on both sides of a cut.
    Each task rewrites the pages of its range just as a single process would; the driver concatenates
    their indexes and commits. A few changes are applied by the driver alone. With a sequence, tasks drop
    changes that are too old, and the driver records the others.
    """
    if changes.isStreaming:
        raise OptionError("changes are a streaming DataFrame; call apply inside foreachBatch")
    changes, options = _as_spelled(changes, base.manifest, options)
    base = with_new_columns(base, plain_schema(arrow_schema_for_spark(changes.schema, "UTC", False)), options)
    if options.sequence is not None:
        sequence_type(base.manifest, _schema(changes, base.manifest), options.sequence)
    check_names(stream_schema(changes).names, base.manifest, options.order_columns)
    options = replace(options, in_order=False)
    encoder = Encoder(base.manifest.codec, base.manifest.schema, changes.columns)
    with kept(changes):
        found = survey(by_place(changes), encoder)
        if found.null_rows:
            raise NullKeyError(
                f"{found.null_rows} changes have a null in the key {list(base.manifest.key)}; remove them"
            )
        if found.rows <= _FEW_ROWS and found.bytes <= _FEW_BYTES:
            return apply_here(home, base, fetch(changes, base.manifest.schema), options)
        cuts = page_cuts(base.index, found.cuts(task_count(found.rows, _ROWS_PER_TASK)))
        return _apply_on_executors(home, base, changes, options, encoder, cuts)


def _as_spelled(
    changes: DataFrame, manifest: Manifest, options: ApplyOptions
) -> tuple[DataFrame, ApplyOptions]:
    """Columns as the master spells them, where the session considers both names equal."""
    stored = [*manifest.schema.names, OPERATION_COLUMN]
    sequence = options.sequence
    if sequence is not None:
        recorded = [manifest.latest.column] if manifest.latest else []
        sequence = found_name(changes, sequence, [*stored, *recorded])
        stored.append(sequence)
    order_by = tuple(found_names(changes, options.order_by, stored))
    names = found_names(changes, changes.columns, [*stored, *order_by])
    renamed = changes if names == changes.columns else changes.toDF(*names)
    return renamed, replace(options, order_by=order_by, sequence=sequence)


def _schema(changes: DataFrame, manifest: Manifest) -> pa.Schema:
    """The columns of the changes, with the types they have when applied."""
    schema = stream_schema(changes)
    nothing = pa.record_batch([pa.nulls(0, field.type) for field in schema], names=schema.names)
    return from_spark(nothing, manifest.schema).schema


def _apply_on_executors(
    home: Home,
    base: Base,
    changes: DataFrame,
    options: ApplyOptions,
    encoder: Encoder,
    cuts: NDArray[np.int64],
) -> int | None:
    task = ApplyTask(
        path=home.path,
        manifest=base.manifest,
        schema=_schema(changes, base.manifest),
        options=options,
        first_pages=[0, *np.searchsorted(base.index.first, cuts, "left").tolist()],
        marker=uuid.uuid4().hex[:16],
    )
    try:
        parts: list[tuple[int, Rewritten]] = run(send(by_place(changes), encoder, cuts), task.rewrite)
        in_order = [part for _, part in sorted(parts, key=lambda numbered: numbered[0])]
        return commit_next(home, base, in_order, options, mover_for)
    finally:
        home.discard_unless_committed(base.manifest.version + 1, home.marked(task.marker))


def page_cuts(index: PageIndex, cuts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The cuts, moved so that no page has keys on both sides of one.

    A cut inside a page moves to the start of the first of the pages that share keys with it. A cut in the
    gap between two pages stays, so that many new keys in a row are still split among many tasks.
    """
    if len(index) == 0:
        return cuts
    begins = np.concatenate([[True], index.last[:-1] < index.first[1:]])
    chain = np.maximum.accumulate(np.where(begins, np.arange(len(index)), 0))
    page = np.searchsorted(index.first, cuts, "right") - 1
    page, cuts = page[page >= 0], cuts[page >= 0]
    moved = np.where(index.last[page] >= cuts, index.first[chain[page]], cuts)
    return np.unique(moved[moved > index.first[0]])


@dataclass(frozen=True)
class ApplyTask:
    """What a task needs to know to apply its part."""

    path: str
    manifest: Manifest
    schema: pa.Schema
    options: ApplyOptions
    first_pages: list[int]
    marker: str

    def rewrite(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, Rewritten]]:
        """Rewrite the pages that the changes touch."""
        first = next(batches, None)
        if first is None:
            return
        part = first.column(PART_COLUMN)[0].as_py()
        with Master.open(self.path, self.manifest.version) as master:
            home, manifest = Home(self.path), self.manifest
            refuse_other(manifest, master.id, self.path)
            changes = (
                from_spark(self._named(batch), manifest.schema)
                for given in ([first], batches)
                for batch in given
            )
            yield (
                part,
                rewrite(
                    home,
                    manifest,
                    master.index,
                    self.schema,
                    changes,
                    self.options,
                    self.first_pages[part],
                    self.marker,
                ),
            )

    def _named(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.drop_columns([PART_COLUMN]).rename_columns(self.schema.names)
