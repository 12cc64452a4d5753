"""How many rows are pending before pages are read for them."""

from benchmarks.figures.figure import Curves, Figure, Sweep, Verdict
from benchmarks.figures.measures import sustainable_rate
from benchmarks.figures.ssij.setting import PAPER, SSIJ


def verdict(curves: Curves) -> Verdict:
    """A rise, then a plateau, and a fall at the end."""
    rates = curves["SSIJ"]
    top = max(rates)
    best = curves.x[rates.index(top)]
    near_top = sum(rate > 0.9 * top for rate in rates)
    return Verdict(
        holds=rates[0] < 0.7 * top and rates[-1] < 0.7 * top and near_top > 2,
        number=f"best at {best:,.0f} rows ({top:,.0f} rows/s); {rates[0] / top:.2f} of that at "
        f"{curves.x[0]:,.0f}, {rates[-1] / top:.2f} at {curves.x[-1]:,.0f}",
        why=(
            "There is a rise and a fall but no plateau in between: more pending rows share each page that is "
            "read, until they leave no room for those that arrive while pages are read."
        ),
    )


FIGURE = Figure(
    name="ssij-13",
    paper=PAPER,
    title="Throughput over the size of the stream buffer, memory 1 %, skew 1",
    claim=(
        "Throughput rises with the stream buffer, stays on a long plateau, and falls when the buffer "
        "takes much of the memory."
    ),
    sweep=Sweep(
        "pending rows that start a join phase (SB_thresh)",
        (5_000, 20_000, 100_000, 400_000, 1_000_000, 2_000_000),
        lambda setting, x: setting.with_scaled(stream_rows=int(x)),
        is_logarithmic=True,
    ),
    contenders={"SSIJ": SSIJ.with_memory(0.01)},
    measure=sustainable_rate,
    verdict=verdict,
)
