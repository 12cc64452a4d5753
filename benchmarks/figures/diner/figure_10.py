"""Skew."""

from benchmarks.figures.diner.leads import leading
from benchmarks.figures.diner.measures import results_online
from benchmarks.figures.diner.setting import PAPER, Setting, contenders
from benchmarks.figures.figure import Figure, Sweep

WHY = "When a few values make up nearly all of the input, every join that keeps them emits the same."

FIGURE = Figure(
    name="diner-10",
    paper=PAPER,
    title="Results before the inputs end, Zipf keys in [1, 999]",
    claim="DINER's gain is even larger than with the real data, at every skew from 1 to 5.",
    sweep=Sweep("skew", (1, 2, 3, 4, 5), lambda setting, skew: setting.with_source(skew=skew)),
    contenders=contenders(Setting()),
    measure=results_online,
    verdict=leading(WHY, at_least=1.3),
    unit="thousand results",
    is_logarithmic=True,
)
