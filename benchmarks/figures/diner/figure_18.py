"""Relations of different sizes."""

from itertools import pairwise

from benchmarks.figures.diner.leads import gains, least, said
from benchmarks.figures.diner.measures import share_online
from benchmarks.figures.diner.setting import PAPER, Setting, contenders
from benchmarks.figures.figure import Curves, Figure, Sweep, Verdict

_BOTH = 0.05 * 2
"""The memory, as a share of one relation of full size."""

WHY = "A smaller relation leaves more of the memory to the other."


def at(setting: Setting, percent: float) -> Setting:
    """The second relation has this percentage of the rows of the first; the memory stays the same."""
    share = percent / 100
    return setting.with_source(right_share=share).with_(memory=_BOTH / (1 + share))


def verdict(curves: Curves) -> Verdict:
    """More than the others, and a larger share of the result the smaller the second relation is."""
    found = gains(curves)
    rises = all(smaller > larger for smaller, larger in pairwise(curves["DINER"]))
    holds = least(found) > 1 and rises
    return Verdict(
        holds=holds,
        number=f"DINER emits {curves['DINER'][-1]:.0f} to {curves['DINER'][0]:.0f} % of the result: "
        f"{said(found)}",
        why="" if holds else WHY,
    )


FIGURE = Figure(
    name="diner-18",
    paper=PAPER,
    title="Share of the result before the inputs end, one relation smaller, memory for 10,000 rows",
    claim="DINER does better the smaller one of the relations is.",
    sweep=Sweep("rows of the second relation, % of the first", (20, 40, 60, 80, 100), at),
    contenders=contenders(Setting()),
    measure=share_online,
    verdict=verdict,
    unit="% of all results",
)
