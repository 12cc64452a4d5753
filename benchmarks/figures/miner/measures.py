"""Runs a join of many streams on a simulated clock, and counts what it delivers before its inputs end."""

from functools import lru_cache
from typing import Any

import duckdb

from adjoin.streamjoin.frame import INPUT_SHARE
from adjoin.streamjoin.manyway.join import ManyInputJoin
from benchmarks.figures.figure import Measurement, World
from benchmarks.figures.line import (
    BLOCK_BYTES,
    MAX_NEW,
    ROW_BYTES,
    WAIT_SECONDS,
    Line,
    papers_disk,
    set_aside,
)
from benchmarks.figures.miner.bound import most_online
from benchmarks.figures.miner.relations import Relations
from benchmarks.figures.miner.setting import BOUND, JOINS, Setting


def share_online(setting: Setting, world: World) -> Measurement:
    """Results before the inputs end, in percent of all."""
    if setting.algorithm == BOUND:
        return Measurement(most_online(setting.memory, world))
    results, details = _run(setting, world)
    return Measurement(100 * results / _total(setting.relations, world), details)


def buffer_most(setting: Setting, world: World) -> Measurement:
    """The most rows that waited where a reactive phase ended, those with no room in the buffer included."""
    _, details = _run(setting, world)
    return Measurement(details["buffer_most"], details)


@lru_cache(maxsize=4)
def _run(setting: Setting, world: World) -> tuple[int, dict[str, float]]:
    """Results before the inputs end, and what explains them."""
    max_new = world.scaled(MAX_NEW) if setting.algorithm == "MINER" else 0
    line = Line(setting.relations.draw(world), setting.silence, max_new, world.seed)
    results, index_share = 0, 0.0
    with _operator(setting, line, max_new) as join:
        for _, so_far in line.feed(join):
            results, metrics = so_far, join.metrics()
            index_share = max(index_share, metrics["index_bytes"] / metrics["memory_bytes"])
    phases = max(1, metrics["reactive_phases"])
    return results, {
        "online": metrics["results_online"],
        "reactive": metrics["results_reactive"],
        "blocks_flushed": metrics["blocks_flushed"],
        "pages_read": metrics["pages_read"],
        "buffer_most": metrics["input_buffer_rows_at_handover_max"] + line.most_outside,
        "buffer_mean": metrics["input_buffer_rows_at_handover"] / phases,
        "refused": line.refused,
        "index_percent": 100 * index_share,
    }


@lru_cache(maxsize=8)
def _total(relations: Relations, world: World) -> int:
    """Results of the whole join."""
    with duckdb.connect() as connection:
        for name, batch in relations.draw(world).items():
            connection.register(name, batch.drop_columns(["row", "payload"]))
        query = f"SELECT count(*) FROM {', '.join(relations.names)} WHERE {' AND '.join(relations.on)}"
        ((count,),) = connection.execute(query).fetchall()
    return int(count)


def _operator(setting: Setting, line: Line, max_new: int) -> ManyInputJoin:
    schemas = {name: batch.schema for name, batch in line.relations.items()}
    options: dict[str, Any] = {"max_new": max_new, "block_bytes": BLOCK_BYTES, "columns": []}
    if setting.algorithm == "MINER":
        options["max_outer"] = 6
    make, on = JOINS[setting.algorithm], setting.relations.on
    tuples_bytes = int(setting.memory * ROW_BYTES * sum(batch.num_rows for batch in line.batches))
    memory = tuples_bytes + (1 << 21)
    for _ in range(6):  # what is set aside depends a little on the whole
        with make(schemas, on, memory=memory, **options) as join:
            memory = int((tuples_bytes + set_aside(join._sizes)) / (1 - INPUT_SHARE * (setting.silence > 0)))
    times = {"wait_seconds": WAIT_SECONDS, "clock": line, "disk": papers_disk()}
    join = make(schemas, on, memory=memory, **times, **options)
    assert isinstance(join, ManyInputJoin)
    return join
