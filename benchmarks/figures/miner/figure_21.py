"""The input buffer, with two, three and four inputs."""

from benchmarks.figures.figure import Curves, Figure, Verdict
from benchmarks.figures.line import MAX_NEW
from benchmarks.figures.miner.measures import buffer_most
from benchmarks.figures.miner.setting import PAPER, SILENCE_SWEEP, Setting, by_inputs

LIMIT = MAX_NEW / PAPER.scale
WHY = "Reading a block takes as long as some rows take to arrive, whatever the scale; MaxNewArr is scaled."


def verdict(curves: Curves) -> Verdict:
    """At most 4 rows per 1,000 above MaxNewArr."""
    most = max(max(curves[f"{count} inputs"]) for count in (2, 3, 4))
    holds = most <= 1.004 * LIMIT
    return Verdict(
        holds=holds,
        number=f"at most {most - LIMIT:,.0f} rows above the {LIMIT:.0f} of MaxNewArr",
        why="" if holds else WHY,
    )


FIGURE = Figure(
    name="miner-21",
    paper=PAPER,
    title=(
        "Most rows in the input buffer at the end of reactive phases; MaxNewArr is 1,000 divided by the scale"
    ),
    claim=(
        "The input buffer never has more than 1,001 to 1,004 rows when MINER hands over, MaxNewArr being "
        "1,000."
    ),
    sweep=SILENCE_SWEEP,
    contenders=by_inputs(Setting()),
    measure=buffer_most,
    verdict=verdict,
    unit="rows",
)
