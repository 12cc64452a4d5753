"""The rate of "auto" compared with that of the best single choice."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

from benchmarks.figures.figure import REAL, SIMULATED, Curves, Figure, Paper, Sweep, Verdict
from benchmarks.figures.masters import KeyedMaster
from benchmarks.figures.measures import service_rate
from benchmarks.figures.setting import Setting
from benchmarks.figures.streams import LocalStream, ZipfStream

ROWS = 40_000_000
STREAM_ROWS = 100_000_000
SINGLE = ("ssij", "ssij+front", "xhybridjoin", "xhybridjoin+front", "meshjoin", "cmeshjoin")

PAPER = Paper(
    name="auto",
    citation="The choice between the joins",
    scale=100,
    setting=Path(__file__).with_name("setting.md").read_text(),
)


def _case(per_key: int, memory: float, skew: float, placement: Literal["noperm", "random"]) -> Setting:
    return Setting(
        algorithm="auto",
        master=KeyedMaster(rows=ROWS, per_key=per_key, spread="random" if per_key > 1 else "equal"),
        stream=ZipfStream(keys=ROWS // per_key, rows=STREAM_ROWS, skew=skew, placement=placement),
        memory=memory,
        finds_results=True,
    )


LOCAL = replace(
    _case(16, 0.1, 1.0, "noperm"),
    stream=LocalStream(keys=ROWS // 16, intervals=10, interval_rows=STREAM_ROWS // 10),
)
CASES = (
    _case(320, 0.075, 0.0, "noperm"),
    _case(320, 0.075, 1.0, "noperm"),
    _case(320, 0.03, 1.0, "random"),
    LOCAL,
    _case(1, 0.2, 1.0, "noperm"),
    _case(1, 0.2, 0.0, "noperm"),
    _case(1, 0.03, 1.0, "random"),
    _case(1, 0.1, 1.0, "random"),
    _case(1, 0.1, 0.5, "random"),
)


def verdict(curves: Curves) -> Verdict:
    """At least nine tenths of the best everywhere."""
    best = [max(curves.at(name, x) for name in SINGLE) for x in curves.x]
    shares = [curves.at("auto", x) / most for x, most in zip(curves.x, best, strict=True)]
    return Verdict(
        holds=min(shares) >= 0.9,
        number=f"auto reaches {min(shares):.2f} to {max(shares):.2f} of the best single choice",
        why="What it loses is the memory of the row cache where nothing is hot."
        if min(shares) >= 0.9
        else "The models do not cover everything an operator does.",
    )


FIGURE = Figure(
    name="auto-01",
    paper=PAPER,
    title="The rate of every single choice and of auto, in settings from all papers",
    claim="Ours: auto always reaches at least 0.9 of the best single choice.",
    sweep=Sweep(
        "setting",
        tuple(float(number) for number in range(1, len(CASES) + 1)),
        lambda setting, x: replace(CASES[int(x) - 1], algorithm=setting.algorithm),
    ),
    contenders={name: replace(CASES[0], algorithm=name) for name in ("auto", *SINGLE)},
    measure=service_rate,
    verdict=verdict,
    is_logarithmic=True,
    devices=(SIMULATED, REAL),
)
