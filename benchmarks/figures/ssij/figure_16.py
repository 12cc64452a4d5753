"""Deadlines."""

from benchmarks.figures.figure import Curves, Figure, Sweep, Verdict
from benchmarks.figures.measures import timely_rate
from benchmarks.figures.ssij.setting import MASTER_ROWS, PAPER, SSIJ


def verdict(curves: Curves) -> Verdict:
    """The longer rows may wait, the more of them."""
    rates = curves["SSIJ"]
    return Verdict(
        holds=curves.is_rising("SSIJ") and curves.growth("SSIJ") > 10,
        number=", ".join(
            f"{rate:,.0f} rows/s at {seconds:g} s" for seconds, rate in zip(curves.x, rates, strict=True)
        ),
        why="The paper has 550 rows/s at 10 s, 5500 at 60 s and 22,000 at 120 s.",
    )


FIGURE = Figure(
    name="ssij-16",
    paper=PAPER,
    title="Throughput over the deadline of every row, master of 5 GB, memory 7.5 %, skew 1",
    claim="550 rows/s when each row is answered within 10 s, 5500 within 60 s, 22,000 within 120 s.",
    sweep=Sweep(
        "deadline, seconds (times the scale)",
        (10, 30, 60, 90, 120),
        lambda setting, x: setting.with_seconds(deadline=x),
    ),
    contenders={"SSIJ": SSIJ.with_master(rows=MASTER_ROWS // 2, per_key=160)},
    measure=timely_rate,
    verdict=verdict,
)
