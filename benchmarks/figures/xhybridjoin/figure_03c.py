"""Service rate over skew."""

from benchmarks.figures.figure import Curves, Figure, Sweep, Verdict
from benchmarks.figures.queues.measures import service_rate
from benchmarks.figures.xhybridjoin.setting import JOINS, PAPER, X


def verdict(curves: Curves) -> Verdict:
    """The best for all but uniform keys, for which MESHJOIN is best."""
    ratios = curves.ratios(X, "MESHJOIN")
    best = all(min(curves.ratios(X, name)[1:]) > 1 for name in ("HYBRIDJOIN", "MESHJOIN"))
    return Verdict(
        holds=best and ratios[0] < 1 and curves.is_rising(X),
        number=f"X-HYBRIDJOIN {ratios[0]:.2f} times MESHJOIN at skew 0, {ratios[-1]:.2f} times at skew "
        f"1; {curves.ratios(X, 'HYBRIDJOIN')[0]:.2f} and {curves.ratios(X, 'HYBRIDJOIN')[-1]:.2f} times "
        "HYBRIDJOIN",
        why=(
            "It rises with skew, but does not lose to MESHJOIN at skew 0. The load that the oldest row "
            "needs has collected rows for the longest time, with uniform keys twice as many as a portion of "
            "MESHJOIN. The paper's X-HYBRIDJOIN spends that on looking up all pinned rows in each iteration, "
            "ours does not. HYBRIDJOIN is better up to skew 0.25, where pinned pages answer fewer rows than "
            "their memory could hold pending."
        ),
    )


FIGURE = Figure(
    name="xhybridjoin-03c",
    paper=PAPER,
    title="Service rate over skew, memory 50 MB, master of 2 million rows",
    claim=(
        "X-HYBRIDJOIN is the best for every skew but 0, the more so the higher the skew; at 0 it is worse "
        "than MESHJOIN by a constant factor."
    ),
    sweep=Sweep("skew", (0.0, 0.25, 0.5, 0.75, 1.0), lambda setting, x: setting.with_(skew=x)),
    contenders=JOINS,
    measure=service_rate,
    verdict=verdict,
)
