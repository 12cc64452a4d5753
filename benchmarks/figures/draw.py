"""Plots, from stored results alone: the same results give the same bytes."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter

from benchmarks.figures.store import REAL, SIMULATED, Stored

_STYLE: dict[str, Any] = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": "medium",
    "font.size": 9,
    "grid.color": "#dddddd",
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "adjoin",
}
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")
_MARKERS = "osD^vPX"
_TITLES = {SIMULATED: "simulated disk", REAL: "disk of this machine"}


def draw(stored: Stored, path: Path) -> None:
    """One panel for each device that was measured."""
    devices = [device for device in (SIMULATED, REAL) if stored.has(device)]
    with mpl.rc_context(_STYLE):
        canvas = Canvas(figsize=(4.6 * len(devices), 3.2), layout="constrained")
        panels = canvas.subplots(1, len(devices), squeeze=False)[0]
        for panel, device in zip(panels, devices, strict=True):
            _draw_panel(panel, stored, device)
            if len(devices) > 1:
                panel.set_title(_TITLES[device])
        panels[0].legend()
        path.parent.mkdir(parents=True, exist_ok=True)
        canvas.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def _draw_panel(panel: Axes, stored: Stored, device: str) -> None:
    figure, curves = stored.figure, stored.curves(device)
    for number, name in enumerate(figure.contenders):
        panel.plot(
            curves.x,
            curves[name],
            label=name,
            color=_COLOURS[number % len(_COLOURS)],
            marker=_MARKERS[number % len(_MARKERS)],
        )
    panel.set_xlabel(figure.sweep.label)
    panel.set_ylabel(figure.unit)
    if figure.sweep.is_logarithmic:
        panel.set_xscale("log")
        panel.set_xticks(curves.x, [f"{x:g}" for x in curves.x])
        panel.minorticks_off()
    if figure.is_logarithmic:
        panel.set_yscale("log")
    else:
        panel.set_ylim(bottom=0)
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
