"""The cost model."""

from dataclasses import replace

from benchmarks.figures.figure import Figure
from benchmarks.figures.hybridjoin.setting import MASTER_SWEEP
from benchmarks.figures.queues.measures import loop_seconds
from benchmarks.figures.xhybridjoin.deviation import contenders, verdict
from benchmarks.figures.xhybridjoin.setting import PAPER, TUNED

FIGURE = Figure(
    name="xhybridjoin-08",
    paper=PAPER,
    title="Seconds of an iteration, measured and predicted, over the size of the master, memory 50 MB",
    claim="The calculated cost closely resembles the measured cost.",
    sweep=replace(MASTER_SWEEP, values=(1, 2, 4, 8)),
    contenders=contenders(TUNED),
    measure=loop_seconds,
    verdict=verdict,
    unit="seconds",
)
