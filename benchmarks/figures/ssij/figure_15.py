"""The longest scan."""

from benchmarks.figures.figure import Curves, Figure, Sweep, Verdict
from benchmarks.figures.measures import sustainable_rate
from benchmarks.figures.ssij.setting import PAPER, SSIJ


def verdict(curves: Curves) -> Verdict:
    """A rise and a fall."""
    rates = curves["SSIJ"]
    top = max(rates)
    return Verdict(
        holds=rates[0] < 0.7 * top and rates[-1] < 0.9 * top,
        number=f"best {top:,.0f} rows/s at {curves.x[rates.index(top)]:g} pages; {rates[0] / top:.2f} of "
        f"that at {curves.x[0]:g}, {rates[-1] / top:.2f} at {curves.x[-1]:g}",
        why=(
            "Long scans do no harm here: pages are read into a landing area of fixed size, a wave at a time, "
            "and never evict a cached page before they are ranked."
        ),
    )


FIGURE = Figure(
    name="ssij-15",
    paper=PAPER,
    title="Throughput over the longest scan, memory 1 %, skew 1",
    claim="Throughput is low for short scans, and falls again for very long ones, which evict useful pages.",
    sweep=Sweep(
        "pages of the longest scan (maxScan)",
        (1, 5, 20, 100, 1000),
        lambda setting, x: setting.with_options(max_scan=int(x)),
        is_logarithmic=True,
    ),
    contenders={"SSIJ": SSIJ.with_memory(0.01)},
    measure=sustainable_rate,
    verdict=verdict,
)
