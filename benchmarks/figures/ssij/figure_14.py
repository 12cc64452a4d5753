"""The fill factor of the master's pages."""

from benchmarks.figures.figure import Curves, Figure, Sweep, Verdict
from benchmarks.figures.measures import sustainable_rate
from benchmarks.figures.setting import Setting
from benchmarks.figures.ssij.setting import PAPER, SSIJ


def filled(setting: Setting, fill: float) -> Setting:
    """The same rows on more or fewer pages, with the same memory in bytes."""
    return setting.with_master(fill=fill).with_memory(setting.memory * fill / 0.8)


def verdict(curves: Curves) -> Verdict:
    """The fuller, the faster."""
    return Verdict(
        holds=all(curves.is_rising(name) for name in FIGURE.contenders),
        number="; ".join(
            f"{name}: x {curves.growth(name):.2f} from {curves.x[0]:g} to {curves.x[-1]:g}"
            for name in FIGURE.contenders
        ),
        why="Fuller pages are fewer: more of them are cached, and fewer are read.",
    )


FIGURE = Figure(
    name="ssij-14",
    paper=PAPER,
    title="Throughput over the fill factor of the master's pages, skew 1",
    claim="Throughput rises with the fill factor.",
    sweep=Sweep("fill factor", (0.5, 0.65, 0.8, 1.0), filled),
    contenders={f"SSIJ, memory {share} %": SSIJ.with_memory(share / 100) for share in (2.5, 7.5)},
    measure=sustainable_rate,
    verdict=verdict,
)
