"""Throughput over memory, the most frequent keys adjacent."""

from benchmarks.figures.figure import Figure
from benchmarks.figures.measures import sustainable_rate
from benchmarks.figures.ssij.memory import CLAIM, memory_sweep, skews, verdict
from benchmarks.figures.ssij.setting import PAPER

FIGURE = Figure(
    name="ssij-05",
    paper=PAPER,
    title="Throughput over memory for several skews, the most frequent keys adjacent (NoPerm)",
    claim=CLAIM,
    sweep=memory_sweep(),
    contenders=skews("noperm"),
    measure=sustainable_rate,
    verdict=verdict,
)
