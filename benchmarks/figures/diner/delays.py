"""Pauses in both relations: figures 16 and 17 and table 3."""

from benchmarks.figures.diner.setting import Setting
from benchmarks.figures.figure import Sweep

SILENCE_SWEEP: Sweep[Setting] = Sweep(
    "pause, % of a fragment's time", (10, 20, 30, 40, 50), lambda setting, x: setting.with_(silence=x / 100)
)
