"""Deadlines."""

from benchmarks.figures.figure import Curves, Figure, Sweep, Verdict
from benchmarks.figures.measures import timely_rate
from benchmarks.figures.ssij.setting import MASTER_ROWS, PAPER, SSIJ

PAPERS = {10: 550, 60: 5_500, 120: 22_000}


def verdict(curves: Curves) -> Verdict:
    """Longer deadlines allow higher rates; at least half the paper's."""
    rates = curves["SSIJ"]
    return Verdict(
        holds=all(curves.at("SSIJ", seconds) > rate / 2 for seconds, rate in PAPERS.items()),
        number=", ".join(
            f"{rate:,.0f} rows/s at {seconds:g} s" for seconds, rate in zip(curves.x, rates, strict=True)
        ),
        why=(
            "The rise comes at longer deadlines. A row that arrives when a join phase begins waits for two "
            "of them, so a phase must be shorter than half the deadline. Reading 5 GB in scans of 200 pages "
            "takes 79 s on the simulated disk: deadlines above 158 s do not lower the rate, shorter ones do. "
            "The paper's rate at 120 s needs a disk that reads all pages in 60 s."
        ),
    )


FIGURE = Figure(
    name="ssij-16",
    paper=PAPER,
    title="Throughput over the deadline of every row, master of 5 GB, memory 7.5 %, skew 1",
    claim="550 rows/s if every row is answered within 10 s, 5500 within 60 s, 22,000 within 120 s.",
    sweep=Sweep(
        "deadline, seconds (times the scale)",
        (10, 30, 60, 120, 180),
        lambda setting, x: setting.with_seconds(deadline=x),
    ),
    contenders={"SSIJ": SSIJ.with_master(rows=MASTER_ROWS // 2, per_key=160)},
    measure=timely_rate,
    verdict=verdict,
)
