"""How the stream arrives."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures.figure import Curves, Figure, Measurement, Sweep, Verdict, World
from benchmarks.figures.hybridjoin.setting import PAPER
from workloads import BurstyArrivals

_STEPS = 1 << 17
_SOURCES = 10
_SETTLING = 4 << _SOURCES


@dataclass(frozen=True)
class Flow:
    """Rows per step, averaged over `steps`; bursty, or independent of each other."""

    is_bursty: bool
    steps: int = 1


def variance(flow: Flow, world: World) -> Measurement:
    """The variance of the averages, with the mean rate as unit."""
    rows = _rows(flow, world)
    averages = rows.reshape(-1, flow.steps).mean(axis=1) / rows.mean()
    return Measurement(float(averages.var()))


def _rows(flow: Flow, world: World) -> NDArray[np.float64]:
    bursts = BurstyArrivals(_SOURCES, seed=world.seed)
    if not flow.is_bursty:
        return np.random.default_rng(world.seed).poisson(bursts.mean_rows, _STEPS).astype(np.float64)
    bursts.rows(_SETTLING)
    return bursts.rows(_STEPS).astype(np.float64)


def hurst(curves: Curves, name: str) -> float:
    """The Hurst parameter, from the slope of the variance: 0.5 if steps are independent, 1 if identical."""
    slope = np.polyfit(np.log(curves.x), np.log(curves[name]), 1)[0]
    return float(1 + slope / 2)


def verdict(curves: Curves) -> Verdict:
    """Bursty at every scale."""
    bursty, independent = (hurst(curves, name) for name in ("benchmark", "independent arrivals"))
    return Verdict(
        holds=bursty > 0.8,
        number=f"Hurst parameter {bursty:.2f}, of independent arrivals {independent:.2f}",
        why=(
            "The generator is the paper's, with a separate state for each source: with one shared state, as "
            "printed, the total can go below 0."
        ),
    )


FIGURE = Figure(
    name="hybridjoin-09",
    paper=PAPER,
    title="Variance of the rows per step over the number of steps averaged",
    claim="The input stream is bursty and self-similar.",
    sweep=Sweep(
        "steps averaged",
        (1, 4, 16, 64, 256, 512),
        lambda flow, x: replace(flow, steps=int(x)),
        is_logarithmic=True,
    ),
    contenders={"benchmark": Flow(is_bursty=True), "independent arrivals": Flow(is_bursty=False)},
    measure=variance,
    verdict=verdict,
    unit="variance (mean rate = 1)",
    is_logarithmic=True,
)
