"""Service rate over the size of the master."""

from benchmarks.figures.figure import Curves, Figure, Verdict
from benchmarks.figures.hybridjoin.setting import MASTER_SWEEP
from benchmarks.figures.queues.measures import service_rate
from benchmarks.figures.xhybridjoin.setting import JOINS, PAPER, X


def verdict(curves: Curves) -> Verdict:
    """The larger the master, the smaller HYBRIDJOIN's rate in comparison."""
    shares = [100 * ratio for ratio in curves.ratios("HYBRIDJOIN", X)]
    return Verdict(
        holds=all(share < 100 for share in shares)
        and abs(shares[0] - 70) <= 10
        and abs(shares[-1] - 50) <= 10,
        number=f"HYBRIDJOIN reaches {shares[0]:.0f} % of X-HYBRIDJOIN at 0.5 million rows, {shares[-1]:.0f} "
        "% at 8",
        why=(
            "It falls as in the paper, and further: rows that pinned pages answer are never pending here, so "
            "they take no memory from the others."
        ),
    )


FIGURE = Figure(
    name="xhybridjoin-03b",
    paper=PAPER,
    title="Service rate over the size of the master, memory 50 MB",
    claim=(
        "X-HYBRIDJOIN is the best; HYBRIDJOIN reaches 70 % of it at 0.5 million rows and 50 % at 8 million."
    ),
    sweep=MASTER_SWEEP,
    contenders=JOINS,
    measure=service_rate,
    verdict=verdict,
)
