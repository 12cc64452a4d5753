"""The cost models."""

from benchmarks.figures.figure import Curves, Figure, Verdict
from benchmarks.figures.hybridjoin.setting import JOINS, MEMORY_SWEEP, PAPER
from benchmarks.figures.queues.measures import loop_seconds

PRINTED = "HYBRIDJOIN, as printed"


def verdict(curves: Curves) -> Verdict:
    """Predictions and measurements agree."""
    off = {
        name: max(abs(ratio - 1) for ratio in curves.ratios(name, name.split(",")[0]))
        for name in FIGURE.contenders
        if "," in name
    }
    return Verdict(
        holds=max(off.values()) < 0.05,
        number="off by at most " + "; ".join(f"{100 * share:.1f} % ({name})" for name, share in off.items()),
        why=(
            "Most of an iteration is the read, which all forms of the model count alike; they differ in the "
            "rows per iteration, see figure 6."
        ),
    )


FIGURE = Figure(
    name="hybridjoin-11",
    paper=PAPER,
    title="Seconds of an iteration, measured and predicted, over memory",
    claim="The predicted cost closely resembles the measured cost of all three joins.",
    sweep=MEMORY_SWEEP,
    contenders={
        **JOINS,
        **{f"{name}, predicted": join.with_(model="corrected") for name, join in JOINS.items()},
        PRINTED: JOINS["HYBRIDJOIN"].with_(model="paper"),
    },
    measure=loop_seconds,
    verdict=verdict,
    unit="seconds",
    is_logarithmic=True,
)
