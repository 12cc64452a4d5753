"""Throughput over memory, the most frequent keys scattered."""

from benchmarks.figures.figure import Figure
from benchmarks.figures.measures import sustainable_rate
from benchmarks.figures.ssij.memory import CLAIM, memory_sweep, skews, verdict
from benchmarks.figures.ssij.setting import PAPER

FIGURE = Figure(
    name="ssij-06",
    paper=PAPER,
    title="Throughput over memory for several skews, the most frequent keys scattered (Random)",
    claim=CLAIM,
    sweep=memory_sweep((1, 5, 10)),
    contenders=skews("random"),
    measure=sustainable_rate,
    verdict=verdict,
)
