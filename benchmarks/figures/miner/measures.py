"""Runs a join of many streams on a simulated clock, and counts its results before the inputs end."""

from functools import lru_cache, partial

import duckdb

from benchmarks.figures.figure import Measurement, World
from benchmarks.figures.line import MAX_NEW, Line
from benchmarks.figures.miner.bound import most_online
from benchmarks.figures.miner.relations import Relations
from benchmarks.figures.miner.setting import BOUND, JOINS, Setting


def share_online(setting: Setting, world: World) -> Measurement:
    """Results before the inputs end, in percent of all results."""
    if setting.algorithm == BOUND:
        return Measurement(most_online(setting.memory, world))
    results, details = _run(setting, world)
    return Measurement(100 * results / _total(setting.relations, world), details)


def buffer_most(setting: Setting, world: World) -> Measurement:
    """The most rows pending at the end of a reactive phase, including those with no room in the buffer."""
    _, details = _run(setting, world)
    return Measurement(details["buffer_most"], details)


@lru_cache(maxsize=4)
def _run(setting: Setting, world: World) -> tuple[int, dict[str, float]]:
    """Results before the inputs end, and metrics that explain them."""
    max_new = world.scaled(MAX_NEW) if setting.algorithm == "MINER" else 0
    line = Line(setting.relations.draw(world), setting.silence, max_new, world.seed)
    results, index_share = 0, 0.0
    schemas = {name: batch.schema for name, batch in line.relations.items()}
    make = partial(JOINS[setting.algorithm], schemas, setting.relations.on)
    options = {"max_outer": setting.max_outer} if setting.algorithm == "MINER" else {}
    with line.join(make, setting.memory, **options) as join:
        for _, so_far in line.feed(join):
            results, metrics = so_far, join.metrics()
            index_share = max(index_share, metrics["index_bytes"] / metrics["memory_bytes"])
    return results, {**line.details(metrics), "index_percent": 100 * index_share}


@lru_cache(maxsize=8)
def _total(relations: Relations, world: World) -> int:
    """Results of the whole join."""
    with duckdb.connect() as connection:
        for name, batch in relations.draw(world).items():
            connection.register(name, batch.drop_columns(["row", "payload"]))
        query = f"SELECT count(*) FROM {', '.join(relations.names)} WHERE {' AND '.join(relations.on)}"
        ((count,),) = connection.execute(query).fetchall()
    return int(count)
