"""Bursts: how long rows may arrive faster than the highest sustainable rate."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from adjoin.kernels.types import Array
from benchmarks.figures.figure import Curves, Figure, Measurement, Sweep, Verdict, World
from benchmarks.figures.measures import Trial, sustainable_rate
from benchmarks.figures.simulation import highest_rate
from benchmarks.figures.ssij.setting import LOCAL, PAPER

PAPERS = (700, 562, 400, 225)
"""The length of the paper's bursts in milliseconds."""
BEGIN, END = 0.425, 0.45
"""Shares of the stream: a burst begins in the middle of an interval and ends with it at the latest."""


@dataclass(frozen=True)
class Burst:
    """Rows that arrive at a constant rate, except for a burst.

    Attributes:
        nominal: Rows per second.
        percent: How much faster.
        seconds: How long.
        rows: Rows of the whole stream, of which the first may have passed.
    """

    nominal: float
    percent: float
    seconds: float
    rows: int

    def times(self, rows: int) -> Array:
        """When each of the last rows arrives."""
        gaps = np.full(rows, 1 / self.nominal)
        faster = self.nominal * (1 + self.percent / 100)
        begin = int(BEGIN / END * self.rows) - (self.rows - rows)
        gaps[begin : begin + int(self.seconds * faster)] = 1 / faster
        return np.cumsum(gaps)


@cache
def nominal_rate(world: World) -> float:
    """The highest constant rate."""
    return sustainable_rate(LOCAL, world).value


def longest_burst(percent: float, world: World) -> Measurement:
    """The longest burst without overflow, in milliseconds times the scale."""
    nominal, trial = nominal_rate(world), Trial(LOCAL, world)
    rows = trial.stream.rows.slice(0, int(END * len(trial.stream)))
    stream = replace(trial.stream, rows=rows)
    most = (1 - BEGIN / END) * len(stream) / nominal / (1 + percent / 100)

    def is_kept(seconds: float) -> bool:
        return trial.keeps_up_with(stream, Burst(nominal, percent, seconds, len(stream)))

    seconds = highest_rate(is_kept, most)
    return Measurement(1000 * world.scale * seconds, {"nominal": nominal, "most": 1000 * world.scale * most})


def verdict(curves: Curves) -> Verdict:
    """Each at least as long as in the paper."""
    durations = curves["SSIJ"]
    return Verdict(
        holds=all(here >= paper for here, paper in zip(durations, PAPERS, strict=True)),
        number="at least "
        + ", ".join(
            f"{duration:,.0f} ms at +{percent:g} %"
            for percent, duration in zip(curves.x, durations, strict=True)
        ),
        why=(
            "Here a burst is absorbed until the end of its interval, where the measurement stops: by then "
            "nearly all rows find their pages cached, and arriving rows may use half of the memory."
        ),
    )


FIGURE = Figure(
    name="ssij-table-3",
    paper=PAPER,
    title="How long rows may arrive faster than the nominal rate, temporal locality, memory 10 %",
    claim="Bursts of +10, 25, 50 and 70 % are absorbed for 700, 562, 400 and 225 ms.",
    sweep=Sweep("burst, % above the nominal rate", (10, 25, 50, 70), lambda _, percent: percent),
    contenders={"SSIJ": 0.0},
    measure=longest_burst,
    verdict=verdict,
    unit="milliseconds, times the scale",
)
