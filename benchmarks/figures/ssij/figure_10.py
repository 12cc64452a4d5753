"""Memory shared by pages and rows as needed, or divided for ever."""

from dataclasses import replace

from benchmarks.figures.figure import REAL, SIMULATED, Curves, Figure, Verdict
from benchmarks.figures.measures import sustainable_rate
from benchmarks.figures.ssij.memory import memory_sweep
from benchmarks.figures.ssij.setting import LOCAL, PAPER

FIXED = {
    f"{percent} % for pages" if percent else "no cache": replace(
        LOCAL, algorithm="ssij, fixed shares"
    ).with_options(cached_share=percent / 100)
    for percent in (0, 20, 50, 70)
}


def verdict(curves: Curves) -> Verdict:
    """The more pages the better, and shared as needed best of all, the more so the more memory there is."""
    last = [curves[name][-1] for name in (*FIXED, "SSIJ")]
    gains = [curves["SSIJ"][at] / max(curves[name][at] for name in FIXED) for at in range(len(curves.x))]
    most_pages = curves.ratios("SSIJ", "70 % for pages")[0]
    return Verdict(
        holds=last == sorted(last) and gains[-1] > 1.2 and gains[-1] >= gains[0],
        number=f"at {curves.x[-1]:g} % of memory {', '.join(f'{rate:,.0f}' for rate in last)} rows/s; "
        f"shared as needed is {', '.join(f'{gain:.2f}' for gain in gains)} times the best fixed division, "
        f"and {most_pages:.0f} times 70 % for pages at {curves.x[0]:g} %",
        why=(
            "The order is the paper's, the gain comes at little memory instead of much. With 10 % of memory, "
            "70 % of it hold all pages of an interval, and rows have room as well. With 2.5 %, what is good "
            "for pages leaves no room for the rows that arrive when an interval begins. On the disk of this "
            "machine, which positions in no time, some fixed division is ahead by 9 to 41 %."
        ),
    )


FIGURE = Figure(
    name="ssij-10",
    paper=PAPER,
    title="Throughput over memory that pages and rows share as needed or by fixed shares, temporal locality",
    claim=(
        "No cache < 20 % < 50 % < 70 % of the memory for pages < memory shared as needed, "
        "which gains the more the more memory there is."
    ),
    sweep=memory_sweep((2.5, 5, 10)),
    contenders={**FIXED, "SSIJ": LOCAL},
    measure=sustainable_rate,
    verdict=verdict,
    devices=(SIMULATED, REAL),
)
