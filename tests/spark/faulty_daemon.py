"""Spark's Python daemon, except that its workers die or fail, once, where a plan says so.

Spark starts it in place of its own: `spark.python.daemon.module`. The plan is a file, so that the program
which drives Spark can write it anew while workers run.
"""

import errno
import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext, daemon

from adjoin.master import files
from adjoin.master.version_records import QueryRecords
from adjoin.spark.enrich.micro_batch import MicroBatch
from adjoin.spark.enrich.task import EnrichTask
from tests.spark.programs import kill_group

PLAN = "ADJOIN_TEST_PLAN"
SETTINGS = {"spark.python.daemon.module": __name__ if __name__ != "__main__" else "tests.spark.faulty_daemon"}


@dataclass(frozen=True)
class Fault:
    """What happens once, at the first task that reaches the point in this micro-batch.

    Attributes:
        point: "record", "link", "linked", "recorded", "room", "input" or "last row"; see `install`.
        batch: The micro-batch; -1 for a batch DataFrame.
        action: "driver", "executor" or "worker" is killed; "fail" raises; "full" is a full disk.
    """

    point: str
    batch: int
    action: str


def plan(path: Path, *faults: Fault) -> None:
    """Write the plan and clear the record of faults."""
    for done in path.parent.glob(path.name + ".*"):
        done.unlink()
    aside = path.with_suffix(".aside")
    aside.write_text(json.dumps([asdict(fault) for fault in faults]))
    aside.replace(path)


def happened(path: Path) -> int:
    """How many faults of the plan have happened."""
    return len(list(path.parent.glob(path.name + ".*")))


def reach(point: str) -> None:
    """The current task has reached this point."""
    path = os.environ.get(PLAN, "")
    context = TaskContext.get()
    if not os.path.exists(path) or context is None:
        return
    micro_batch = MicroBatch.current(context)
    here = (point, micro_batch.batch_id if micro_batch else -1)
    with open(path, encoding="utf-8") as file:
        faults = [Fault(**fault) for fault in json.load(file)]
    for number, fault in enumerate(faults):
        if (fault.point, fault.batch) != here:
            continue
        # The other tasks of a driver that is about to die must stop too.
        if _is_first(f"{path}.{number}") or fault.action == "driver":
            _ACTIONS[fault.action]()


def _is_first(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _kill_executor() -> None:
    """The worker's parent is this daemon, whose parent is the executor."""
    stat = Path(f"/proc/{os.getppid()}/stat").read_text()
    os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
    signal.pause()


def _fail() -> None:
    raise RuntimeError("this task was told to fail")


def _fill_disk() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


_ACTIONS: dict[str, Callable[[], None]] = {
    "driver": kill_group,
    "executor": _kill_executor,
    "worker": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "fail": _fail,
    "full": _fill_disk,
}


def install() -> None:
    """Insert the points into the code that workers run."""
    version_for, link, join = QueryRecords.version_for, files.link, EnrichTask.join
    posix_fallocate = os.posix_fallocate

    def recorded_version(records: QueryRecords, query_id: str, batch_id: int) -> int:
        reach("record")
        version = version_for(records, query_id, batch_id)
        reach("recorded")
        return version

    def linked(source: str, path: str) -> Any:
        reach("link")
        result = link(source, path)
        reach("linked")
        return result

    def allocated(descriptor: int, offset: int, length: int) -> None:
        reach("room")
        posix_fallocate(descriptor, offset, length)

    def faulty_join(task: EnrichTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from join(task, _faulty(batches))
        reach("last row")

    for place, name, faulty in (
        (QueryRecords, "version_for", recorded_version),
        (files, "link", linked),
        (os, "posix_fallocate", allocated),
        (EnrichTask, "join", faulty_join),
    ):
        setattr(place, name, faulty)


def _faulty(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The point "input" is after the first batch of a partition, while the join waits for more."""
    for batch in batches:
        yield batch
        reach("input")


if __name__ == "__main__":
    install()
    daemon.manager()
