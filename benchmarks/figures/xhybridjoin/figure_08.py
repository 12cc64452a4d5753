"""The cost model."""

from benchmarks.figures.figure import Figure
from benchmarks.figures.hybridjoin.setting import MEMORY_SWEEP
from benchmarks.figures.queues.measures import loop_seconds
from benchmarks.figures.xhybridjoin.deviation import contenders, verdict
from benchmarks.figures.xhybridjoin.setting import PAPER, TUNED

FIGURE = Figure(
    name="xhybridjoin-08",
    paper=PAPER,
    title="Seconds of an iteration, measured and predicted, over memory",
    claim="The calculated cost closely resembles the measured cost.",
    sweep=MEMORY_SWEEP,
    contenders=contenders(TUNED),
    measure=loop_seconds,
    verdict=verdict,
    unit="seconds",
)
