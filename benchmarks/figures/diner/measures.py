"""Runs a join on a simulated clock, and counts its results before the inputs end."""

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjoin.streamjoin.base.spec import SIDES
from benchmarks.figures.diner.setting import JOINS, Setting
from benchmarks.figures.figure import Measurement, World
from benchmarks.figures.line import MAX_NEW, ROW_BYTES, Line
from workloads import Records


def results_online(setting: Setting, world: World) -> Measurement:
    """Thousands of results when this share of the input has arrived."""
    run = _run(setting.with_(arrived=1.0), world)
    return Measurement(float(np.interp(setting.arrived, *run.progress)) / 1000, run.details)


def share_online(setting: Setting, world: World) -> Measurement:
    """Results before the inputs end, in percent of all results."""
    run = _run(setting, world)
    return Measurement(100 * run.progress[1][-1] / run.total, run.details)


def buffer_most(setting: Setting, world: World) -> Measurement:
    """The most rows pending at the end of a reactive phase, including those with no room in the buffer."""
    run = _run(setting, world)
    return Measurement(run.details["buffer_most"], run.details)


@dataclass(frozen=True)
class _Run:
    """The results of a run.

    Attributes:
        progress: Shares of the input, and the results so far at each.
        total: Results of the whole join.
        details: Metrics that explain them.
    """

    progress: tuple[NDArray[np.float64], NDArray[np.float64]]
    total: int
    details: dict[str, float]


@lru_cache(maxsize=8)
def _run(setting: Setting, world: World) -> _Run:
    keys = setting.source.draw(world)
    batches = [Records(ROW_BYTES, seed=side).batch(each) for side, each in enumerate(keys)]
    ahead_rows = world.scaled(MAX_NEW) if setting.algorithm == "DINER" else 0
    line = Line(dict(zip(SIDES, batches, strict=True)), setting.silence, ahead_rows, world.seed)
    schema = batches[0].schema
    options: dict[str, Any] = {"max_outer": setting.max_outer} if setting.algorithm == "DINER" else {}
    if setting.within is not None:
        options["within"] = setting.within
    with line.join(
        partial(JOINS[setting.algorithm], schema, schema, "key"), setting.memory, **options
    ) as join:
        shares, results = zip(*line.feed(join), strict=True)
        details = line.details(join.metrics())
    return _Run((np.array(shares), np.array(results)), _pairs(*keys, setting.within or 0), details)


def _pairs(left: NDArray[np.int64], right: NDArray[np.int64], within: int) -> int:
    """Results of the whole join."""
    values, counts = np.unique(right, return_counts=True)
    ends = np.concatenate(([0], np.cumsum(counts)))
    upper = np.searchsorted(values, left + within, "right")
    return int((ends[upper] - ends[np.searchsorted(values, left - within, "left")]).sum())
