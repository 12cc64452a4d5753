"""Service rate over memory."""

from benchmarks.figures.figure import Curves, Figure, Verdict
from benchmarks.figures.hybridjoin.setting import JOINS, MEMORY_SWEEP, PAPER
from benchmarks.figures.queues.measures import service_rate


def verdict(curves: Curves) -> Verdict:
    """The best with every memory size."""
    ratios = curves.ratios("HYBRIDJOIN", "MESHJOIN")
    over_inlj = min(curves.ratios("HYBRIDJOIN", "INLJ"))
    return Verdict(
        holds=min(ratios) > 1 and over_inlj > 1,
        number=f"{min(ratios):.2f} to {max(ratios):.2f} times MESHJOIN, at least {over_inlj:,.0f} times INLJ",
        why=(
            "The load that the oldest row needs answers more rows than a portion of MESHJOIN; less so where "
            "memory is as large as the master and the processor limits the rate."
        ),
    )


FIGURE = Figure(
    name="hybridjoin-10d",
    paper=PAPER,
    title="Service rate over memory, master of 2 million rows",
    claim="HYBRIDJOIN is better than MESHJOIN and INLJ with every memory size.",
    sweep=MEMORY_SWEEP,
    contenders=JOINS,
    measure=service_rate,
    verdict=verdict,
    is_logarithmic=True,
)
