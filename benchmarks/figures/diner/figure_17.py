"""Prices of a stock, with silences."""

from benchmarks.figures.diner.delays import SILENCE_SWEEP
from benchmarks.figures.diner.leads import gains, least, said
from benchmarks.figures.diner.measures import results_online
from benchmarks.figures.diner.setting import PAPER, Setting, contenders
from benchmarks.figures.diner.sources import CSCO
from benchmarks.figures.figure import Curves, Figure, Verdict


def verdict(curves: Curves) -> Verdict:
    """More than the others, however long the silences are."""
    found = gains(curves)
    return Verdict(
        holds=least(found) > 1,
        number=f"DINER has {said(found)}",
        why="" if least(found) > 1 else "{WHY}",
    )


FIGURE = Figure(
    name="diner-17",
    paper=PAPER,
    title="Results before the inputs end, prices of a stock, a silence behind each tenth of a relation",
    claim="DINER produces more results than RPJ and HMJ.",
    sweep=SILENCE_SWEEP,
    contenders=contenders(Setting(source=CSCO)),
    measure=results_online,
    verdict=verdict,
    unit="thousand results",
)
