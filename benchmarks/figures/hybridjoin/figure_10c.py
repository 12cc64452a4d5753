"""Service rate over the size of the master."""

from benchmarks.figures.figure import Curves, Figure, Verdict
from benchmarks.figures.hybridjoin.setting import JOINS, MASTER_SWEEP, PAPER
from benchmarks.figures.queues.measures import service_rate


def verdict(curves: Curves) -> Verdict:
    """Always the best, by a factor that shrinks as the master grows."""
    ratios = curves.ratios("HYBRIDJOIN", "MESHJOIN")
    over_inlj = min(curves.ratios("HYBRIDJOIN", "INLJ"))
    return Verdict(
        holds=min(ratios) > 1 and over_inlj > 1 and ratios[-1] < ratios[0],
        number=f"{ratios[0]:.2f} times MESHJOIN at {curves.x[0]:g} million rows, {ratios[-1]:.2f} times "
        f"at {curves.x[-1]:g}; at least {over_inlj:,.0f} times INLJ",
        why=(
            "It is the best throughout, but its advantage grows. With a small master both are limited by the "
            "processor, which takes 1 µs per row here. Besides, there are few loads then: much of the stream "
            "needs the first page, and a load of it empties much of the queue."
        ),
    )


FIGURE = Figure(
    name="hybridjoin-10c",
    paper=PAPER,
    title="Service rate over the size of the master, memory 50 MB",
    claim="HYBRIDJOIN is the best, by a factor that shrinks as the master grows.",
    sweep=MASTER_SWEEP,
    contenders=JOINS,
    measure=service_rate,
    verdict=verdict,
    is_logarithmic=True,
)
