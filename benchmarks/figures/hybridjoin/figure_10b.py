"""Waiting time over the arrival rate."""

from benchmarks.figures.figure import Curves, Figure, Sweep, Verdict
from benchmarks.figures.hybridjoin.setting import HYBRIDJOIN, INLJ, MESHJOIN, PAPER
from benchmarks.figures.queues.times import waiting_time

WHOLE, PRINTED = "HYBRIDJOIN, whole loads (model)", "MESHJOIN, as printed (model)"


def verdict(curves: Curves) -> Verdict:
    """Longer than INLJ for slow streams only, always shorter than MESHJOIN."""
    below = [x for x, ratio in zip(curves.x, curves.ratios(WHOLE, "INLJ"), strict=True) if ratio > 1]
    ours = max(
        ratio for x, ratio in zip(curves.x, curves.ratios("HYBRIDJOIN", "INLJ"), strict=True) if x <= 150
    )
    over_mesh = min(curves.ratios(PRINTED, "HYBRIDJOIN"))
    return Verdict(
        holds=ours > 1 and over_mesh > 1,
        number=f"HYBRIDJOIN with whole loads waits longer than INLJ up to {max(below, default=0):g} "
        f"rows/s; HYBRIDJOIN here at most {ours:.2f} times INLJ up to 150; MESHJOIN at least "
        f"{over_mesh:,.0f} times HYBRIDJOIN",
        why=(
            "HYBRIDJOIN here reads only those pages of a load that some row needs: for a slow stream one, "
            "like INLJ. With whole loads, the model agrees with the paper. INLJ "
            "answers 124 rows/s; beyond that, the time shown is the mean over the first 4000 rows."
        ),
    )


FIGURE = Figure(
    name="hybridjoin-10b",
    paper=PAPER,
    title="Waiting time until a row is taken over the arrival rate, at the paper's size",
    claim=(
        "HYBRIDJOIN waits less than MESHJOIN; for streams below 150 rows/s it waits longer than INLJ, whose "
        "backlog grows beyond that."
    ),
    sweep=Sweep(
        "rows that arrive per second",
        (25, 50, 100, 150, 250, 500, 1000, 2000),
        lambda setting, x: setting.with_(arrivals=x),
        is_logarithmic=True,
    ),
    contenders={
        "HYBRIDJOIN": HYBRIDJOIN,
        WHOLE: HYBRIDJOIN.with_(model="paper"),
        "INLJ": INLJ,
        PRINTED: MESHJOIN.with_(model="paper"),
    },
    measure=waiting_time,
    verdict=verdict,
    unit="seconds",
    is_logarithmic=True,
)
