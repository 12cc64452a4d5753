"""Service rate over memory."""

from benchmarks.figures.figure import Curves, Figure, Verdict
from benchmarks.figures.hybridjoin.setting import MEMORY_SWEEP
from benchmarks.figures.queues.measures import service_rate
from benchmarks.figures.xhybridjoin.setting import JOINS, PAPER, X


def verdict(curves: Curves) -> Verdict:
    """The best with every memory size; the others are close together."""
    over_hybrid, over_mesh = (curves.ratios(X, name) for name in ("HYBRIDJOIN", "MESHJOIN"))
    hybrid, second = curves.ratios("HYBRIDJOIN", "MESHJOIN"), curves.ratios("R-MESHJOIN", "MESHJOIN")
    return Verdict(
        holds=min(over_hybrid) > 1.1
        and min(over_mesh) > 1.1
        and max(abs(each - 1) for each in second) < 0.05,
        number=f"X-HYBRIDJOIN {min(over_hybrid):.2f} to {max(over_hybrid):.2f} times HYBRIDJOIN; "
        f"HYBRIDJOIN {min(hybrid):.2f} to {max(hybrid):.2f} times MESHJOIN; R-MESHJOIN {min(second):.2f} "
        f"to {max(second):.2f} times MESHJOIN",
        why="With much memory all approach the million rows per second that the processor can do here.",
    )


FIGURE = Figure(
    name="xhybridjoin-03a",
    paper=PAPER,
    title="Service rate over memory, master of 2 million rows",
    claim=(
        "X-HYBRIDJOIN is significantly better with every memory size; HYBRIDJOIN is slightly better than "
        "MESHJOIN and R-MESHJOIN, which are alike."
    ),
    sweep=MEMORY_SWEEP,
    contenders=JOINS,
    measure=service_rate,
    verdict=verdict,
)
