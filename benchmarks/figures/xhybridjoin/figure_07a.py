"""Tuning over the size of the master."""

from benchmarks.figures.figure import Figure
from benchmarks.figures.hybridjoin.setting import MASTER_SWEEP
from benchmarks.figures.queues.measures import service_rate
from benchmarks.figures.xhybridjoin.setting import PAPER
from benchmarks.figures.xhybridjoin.tuning import CONTENDERS, verdict

FIGURE = Figure(
    name="xhybridjoin-07a",
    paper=PAPER,
    title="Service rate with and without tuning over the size of the master, memory 50 MB",
    claim="X-HYBRIDJOIN is significantly better with tuning for every master size.",
    sweep=MASTER_SWEEP,
    contenders=CONTENDERS,
    measure=service_rate,
    verdict=verdict,
)
