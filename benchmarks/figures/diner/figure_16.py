"""Zipf keys, with silences."""

from benchmarks.figures.diner.delays import SILENCE_SWEEP
from benchmarks.figures.diner.leads import gains, least, said
from benchmarks.figures.diner.measures import results_online
from benchmarks.figures.diner.setting import PAPER, Setting, contenders
from benchmarks.figures.figure import Curves, Figure, Verdict

WHY = (
    "Here a merge delivers much for what it reads, as HMJ writes tuples whether they are "
    "useful or not, and it goes on while rows wait, many more than memory could hold (table "
    "3). DINER stops when they are 500."
)


def verdict(curves: Curves) -> Verdict:
    """1.83 times RPJ and 8.65 times HMJ somewhere, more everywhere."""
    found = gains(curves)
    holds = least(found) > 1 and max(found["RPJ"]) >= 1.65 and max(found["HMJ"]) >= 7.8
    return Verdict(
        holds=holds,
        number=f"DINER has {said(found)}",
        why="" if holds else WHY,
    )


FIGURE = Figure(
    name="diner-16",
    paper=PAPER,
    title="Results before the inputs end, Zipf keys, a silence behind each tenth of a relation",
    claim="DINER produces up to 1.83 times as many results as RPJ, and up to 8.65 times as many as HMJ.",
    sweep=SILENCE_SWEEP,
    contenders=contenders(Setting()),
    measure=results_online,
    verdict=verdict,
    unit="thousand results",
)
