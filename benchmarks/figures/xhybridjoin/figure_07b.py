"""Tuning over memory."""

from benchmarks.figures.figure import Figure
from benchmarks.figures.hybridjoin.setting import MEMORY_SWEEP
from benchmarks.figures.queues.measures import service_rate
from benchmarks.figures.xhybridjoin.setting import PAPER
from benchmarks.figures.xhybridjoin.tuning import CONTENDERS, verdict

FIGURE = Figure(
    name="xhybridjoin-07b",
    paper=PAPER,
    title="Service rate with and without tuning over memory, master of 2 million rows",
    claim="X-HYBRIDJOIN is significantly better with tuning for every memory size.",
    sweep=MEMORY_SWEEP,
    contenders=CONTENDERS,
    measure=service_rate,
    verdict=verdict,
)
