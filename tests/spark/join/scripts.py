"""Streams as scripts of micro-batches, run by a query one micro-batch at a time."""

import datetime
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import adjoin

BEGIN = 1_767_225_600_000_000
"""The first of January 2026, in microseconds."""
IDLE, RESTART, KILL, FAIL = "idle", "restart", "kill", "fail"
"""Nothing arrives; the query restarts; operators are killed; the next micro-batch fails in the sink."""
SCHEMA = "side string, k long, t timestamp, v long"
_ARROW = pa.schema(
    [("side", pa.string()), ("k", pa.int64()), ("t", pa.timestamp("us", "UTC")), ("v", pa.int64())]
)

Row = tuple[int | None, int | None, int]
"""A key, a time in microseconds and a number."""
Step = tuple[Sequence[Row], Sequence[Row]] | str
"""The rows of both sides in a micro-batch, or what happens between two of them."""


@dataclass(frozen=True)
class Case:
    """A join.

    Attributes:
        how: As for `adjoin.join`.
        before: The bound, in microseconds; None: no bound.
        after: The bound, in microseconds; None: no bound.
        delays: The delay of the watermark of each side, in milliseconds; None: it has none.
    """

    how: str
    before: int | None = 0
    after: int | None = 0
    delays: tuple[int | None, int | None] = (0, 0)

    def of_adjoin(self, left: DataFrame, right: DataFrame, spill: Path) -> DataFrame:
        """Our join."""
        bounds: dict[str, Any] = {}
        if self.before is not None or self.after is not None:
            bounds = {"time": ("lt", "rt"), "before": _span(self.before), "after": _span(self.after)}
        return adjoin.join(left, right, on={"lk": "rk"}, how=self.how, memory="4MB", spill=spill, **bounds)

    def of_spark(self, left: DataFrame, right: DataFrame, _spill: Path) -> DataFrame:
        """Spark's own."""
        condition = "lk = rk"
        if self.before is not None:
            condition += f" and rt >= lt - interval {self.before} microseconds"
        if self.after is not None:
            condition += f" and rt <= lt + interval {self.after} microseconds"
        kinds = {"left": "left_outer", "right": "right_outer", "full": "full_outer", "semi": "left_semi"}
        return left.join(right, F.expr(condition), kinds.get(self.how, self.how))


def _span(microseconds: int | None) -> datetime.timedelta | None:
    return None if microseconds is None else datetime.timedelta(microseconds=microseconds)


@dataclass
class Player:
    """Runs a query over a script, and keeps what it returned by micro-batch.

    Attributes:
        spark: The session.
        directory: Where input and checkpoint are.
        case: The join.
        joined: Joins the two streams.
        returned: The rows of each micro-batch.
    """

    spark: SparkSession
    directory: Path
    case: Case
    joined: Callable[[DataFrame, DataFrame, Path], DataFrame]
    returned: dict[int, list[tuple[Any, ...]]] = field(default_factory=dict)
    files: int = 0
    fails: bool = False

    def play(self, script: Sequence[Step]) -> list[Counter[Any]]:
        """What the sink holds after each step that is not a restart."""
        (self.directory / "in").mkdir(parents=True)
        held, query = [], self._start()
        try:
            for step in script:
                if step == RESTART:
                    query.stop()
                    query = self._start()
                elif step == KILL:
                    kill_operators(self.directory)
                elif step == FAIL:
                    self.fails = True
                elif not isinstance(step, str):
                    self._add(*step)
                if isinstance(step, str) and step != IDLE:
                    continue
                try:
                    query.processAllAvailable()
                except StreamingQueryException:
                    query = self._start()
                    query.processAllAvailable()
                held.append(Counter(row for rows in self.returned.values() for row in rows))
        finally:
            query.stop()
        return held

    def _start(self) -> Any:
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        stream = reader.parquet(str(self.directory / "in"))
        sides = []
        for side, delay in zip("lr", self.case.delays, strict=True):
            df = stream.filter(F.col("side") == side).selectExpr(f"k {side}k", f"t {side}t", f"v {side}v")
            sides.append(df if delay is None else df.withWatermark(f"{side}t", f"{delay} milliseconds"))
        result = self.joined(sides[0], sides[1], self.directory)
        names = [name for name in ("lk", "lt", "lv", "rk", "rt", "rv") if name in result.columns]
        shown = [f"unix_micros({name}) {name}" if name in ("lt", "rt") else name for name in names]
        writer = result.selectExpr(*shown).writeStream.foreachBatch(self._keep)
        return writer.option("checkpointLocation", str(self.directory / "checkpoint")).start()

    def _keep(self, df: DataFrame, batch: int) -> None:
        self.returned[batch] = [tuple(row) for row in df.collect()]
        if self.fails:
            self.fails = False
            raise RuntimeError("the micro-batch fails after its rows have reached the sink")

    def _add(self, left: Sequence[Row], right: Sequence[Row]) -> None:
        rows = [dict(zip(_ARROW.names, ("l", *row), strict=True)) for row in left]
        rows += [dict(zip(_ARROW.names, ("r", *row), strict=True)) for row in right]
        table = pa.Table.from_pylist(rows, schema=_ARROW)
        path = self.directory / f"{self.files:05d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1_700_000_000 + self.files,) * 2)
        path.rename(self.directory / "in" / path.name)
        self.files += 1


def operators(spill: Path) -> list[int]:
    """The processes that hold operators with this directory for what memory cannot hold."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            command = path.read_bytes()
            if b"adjoin.spark.join.operator_process" in command and f"{spill}/".encode() in command:
                found.append(int(path.parent.name))
    return found


def kill_operators(spill: Path) -> None:
    """Kill these processes."""
    for process in operators(spill):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def random_case(chance: random.Random, hows: Sequence[str]) -> Case:
    """A join with bounds and watermarks that let its unmatched rows be returned."""
    how = chance.choice(hows)
    before, after = (chance.choice([0, 0, 1_000, 3_000, 6_000, 1_500, 1, 2_999]) * 1_000 for _ in "lr")
    if chance.random() < 0.2:
        before = -chance.choice([1, 500, 2_000]) * 1_000
        after = max(after, -before)
    delays = chance.choice([0, 1, 3_000]), chance.choice([0, 2_000])
    if how == "inner" and chance.random() < 0.3:
        return Case(how, None, None, chance.choice([(None, None), (0, None), delays]))
    return Case(how, before, after, delays)


def random_script(chance: random.Random, steps: int = 8) -> list[Step]:
    """Rows out of order, some late, some twice, with null keys; pauses and restarts."""
    now, number, script = BEGIN, 0, list[Step]()
    lag = {"l": 0, "r": chance.choice([0, 0, 3_000_000])}
    for _ in range(steps):
        sides: list[list[Row]] = []
        for side in "lr":
            rows: list[Row] = []
            for _ in range(0 if chance.random() < 0.15 else chance.randint(1, 14)):
                number += 1
                time = now - lag[side] + chance.randint(-9_000, 4_000) * 1_000 + chance.choice([0, 0, 1, 999])
                rows.append((None if chance.random() < 0.05 else chance.randint(0, 4), time, number))
                if chance.random() < 0.1:
                    rows.append(rows[-1])
            sides.append(rows)
        script.append((sides[0], sides[1]))
        now += chance.choice([1, 2, 4]) * 1_000_000
        if chance.random() < 0.2:
            script.append(IDLE)
        elif chance.random() < 0.1:
            script += [IDLE, RESTART]
    return [*script, IDLE]
