"""The input buffer."""

from benchmarks.figures.diner.delays import SILENCE_SWEEP
from benchmarks.figures.diner.measures import buffer_most
from benchmarks.figures.diner.setting import PAPER, Setting, contenders
from benchmarks.figures.figure import Curves, Figure, Verdict
from benchmarks.figures.line import MAX_NEW

LIMIT = MAX_NEW / PAPER.scale

WHY = "Reading a block takes as long as some rows take to arrive."


def verdict(curves: Curves) -> Verdict:
    """DINER's stays within 3 % of MaxNewArr, RPJ's does not."""
    diner, rpj = max(curves["DINER"]), max(curves["RPJ"])
    holds = diner <= 1.03 * LIMIT < rpj
    return Verdict(
        holds=holds,
        number=f"DINER exceeds the {LIMIT:.0f} rows of MaxNewArr by at most {diner - LIMIT:,.0f}; "
        f"RPJ up to {rpj:,.0f}, HMJ up to {max(curves['HMJ']):,.0f}",
        why="" if holds else WHY,
    )


FIGURE = Figure(
    name="diner-table-3",
    paper=PAPER,
    title="Most rows in the input buffer during reactive phases; MaxNewArr is 1,000 divided by the scale",
    claim="DINER's input buffer stays within 3 % of MaxNewArr; RPJ and HMJ let it grow to thousands of rows.",
    sweep=SILENCE_SWEEP,
    contenders=contenders(Setting()),
    measure=buffer_most,
    verdict=verdict,
    unit="rows",
    is_logarithmic=True,
)
