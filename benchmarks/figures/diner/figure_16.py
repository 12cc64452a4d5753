"""Zipf keys, with pauses."""

from benchmarks.figures.diner.delays import SILENCE_SWEEP
from benchmarks.figures.diner.leads import gains, least, said
from benchmarks.figures.diner.measures import results_online
from benchmarks.figures.diner.setting import PAPER, Setting, contenders
from benchmarks.figures.figure import Curves, Figure, Verdict

WHY = (
    "Here a merge emits many results for what it reads, because HMJ writes tuples whether they are "
    "useful or not, and it continues while many more rows are waiting than memory could hold (table "
    "3). DINER stops at 500."
)


def verdict(curves: Curves) -> Verdict:
    """1.83 times RPJ and 8.65 times HMJ somewhere, and more than both everywhere."""
    found = gains(curves)
    holds = least(found) > 1 and max(found["RPJ"]) >= 1.65 and max(found["HMJ"]) >= 7.8
    return Verdict(
        holds=holds,
        number=f"DINER emits {said(found)}",
        why="" if holds else WHY,
    )


FIGURE = Figure(
    name="diner-16",
    paper=PAPER,
    title="Results before the inputs end, Zipf keys, a pause after each tenth of a relation",
    claim="DINER produces up to 1.83 times as many results as RPJ, and up to 8.65 times as many as HMJ.",
    sweep=SILENCE_SWEEP,
    contenders=contenders(Setting()),
    measure=results_online,
    verdict=verdict,
    unit="thousand results",
)
