"""Move the pages of a large master on executors; see `adjoin.master.page_moves`."""

import pickle
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from adjoin.errors import StorageError
from adjoin.master import files
from adjoin.master.index import PageIndex
from adjoin.master.manifest import Manifest
from adjoin.master.page_moves import Moved, Mover, move
from adjoin.master.versions import Home
from adjoin.memory.arena import BLOCK_BYTES
from adjoin.spark.jobs import run

MUCH_BYTES = 256 << 20
"""From this size on, executors move the pages."""

_TASK_BYTES = 128 << 20


def mover_of_active_session(page_bytes: int) -> Mover | None:
    """The executors of this thread's session, if there is one and enough to move."""
    session = SparkSession.getActiveSession() if page_bytes >= MUCH_BYTES else None
    return None if session is None else partial(move_on_executors, session)


def move_on_executors(
    session: SparkSession,
    home: Home,
    relation: Manifest,
    index: PageIndex,
    pages: NDArray[np.int64],
    marker: str = "",
) -> Moved:
    """Copy the pages, a run of neighbors per task; files of failed attempts are removed."""
    marker = marker or uuid.uuid4().hex[:16]
    ends = np.cumsum(index.blocks[pages], dtype=np.int64) * BLOCK_BYTES
    parts = np.split(pages, np.flatnonzero(np.diff(ends // _TASK_BYTES)) + 1)
    packed = pa.array([pickle.dumps((part, index.take(part))) for part in parts], pa.binary())
    sent = session.createDataFrame(pa.table({"part": packed})).repartition(len(parts))
    moved: list[Moved] = []
    try:
        moved = run(sent, MoveTask(home.path, relation, marker).move)
        if sum(len(part.pages) for part in moved) != len(pages):
            moved = []
            raise StorageError(f"Spark lost results, so not all pages of {home.path} were moved; try again")
    finally:
        kept = {file.path for part in moved for file in part.files}
        for path in home.marked(marker):
            if path not in kept:
                files.discard(path)
    return Moved.concat(moved)


@dataclass(frozen=True)
class MoveTask:
    """What a task needs to know to move its pages."""

    path: str
    relation: Manifest
    marker: str

    def move(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Moved]:
        """Copy the pages of each part."""
        for batch in batches:
            for packed in batch.column("part"):
                pages, index = pickle.loads(packed.as_py())
                own = np.arange(len(pages))
                moved = move(Home(self.path), self.relation, index, own, self.marker)
                yield replace(moved, pages=pages[moved.pages])
