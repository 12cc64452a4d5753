"""Stock prices, with pauses."""

from benchmarks.figures.diner.delays import SILENCE_SWEEP
from benchmarks.figures.diner.leads import leading
from benchmarks.figures.diner.measures import results_online
from benchmarks.figures.diner.setting import PAPER, Setting, contenders
from benchmarks.figures.diner.sources import CSCO
from benchmarks.figures.figure import Figure

WHY = (
    "The tuples on disk have the same few prices as those in memory, so any work on them finds many matches."
)

FIGURE = Figure(
    name="diner-17",
    paper=PAPER,
    title="Results before the inputs end, stock prices, a pause after each tenth of a relation",
    claim="DINER produces more results than RPJ and HMJ.",
    sweep=SILENCE_SWEEP,
    contenders=contenders(Setting(source=CSCO)),
    measure=results_online,
    verdict=leading(WHY),
    unit="thousand results",
)
