"""How much of the result is emitted while the inputs arrive."""

from benchmarks.figures.diner.measures import share_online
from benchmarks.figures.diner.setting import PAPER, Setting, Source, memory_sweep
from benchmarks.figures.diner.sources import CSCO, IPIX, WEATHER
from benchmarks.figures.figure import Curves, Figure, Verdict

CLAIMED = {"CSCO": (28, 43, 49, 58), "IPIX": (38, 59, 72, 82), "Weather": (10, 17, 24, 29)}
DATA: dict[str, Source] = {"CSCO": CSCO, "IPIX": IPIX, "Weather": WEATHER}

WHY = "The stand-ins were not fitted to the data of the paper."


def verdict(curves: Curves) -> Verdict:
    """Rises with memory, over about the paper's range."""
    near = all(
        abs(here - there) <= 0.2 * there
        for name, shares in CLAIMED.items()
        for here, there in zip(curves[name], shares, strict=True)
    )
    holds = near and all(map(curves.is_rising, CLAIMED))
    return Verdict(
        holds=holds,
        number="; ".join(
            f"{name} " + " / ".join(f"{x:.0f}" for x in curves[name]) + " %" for name in CLAIMED
        ),
        why="" if holds else WHY,
    )


FIGURE = Figure(
    name="diner-table-4",
    paper=PAPER,
    title="Share of the result before the inputs end, DINER",
    claim="CSCO 28 / 43 / 49 / 58 %, IPIX 38 / 59 / 72 / 82 %, Weather 10 / 17 / 24 / 29 % of the result.",
    sweep=memory_sweep(5, 10, 15, 20),
    contenders={name: Setting(source=source) for name, source in DATA.items()},
    measure=share_online,
    verdict=verdict,
    unit="% of all results",
)
