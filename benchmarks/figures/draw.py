"""Draws plots from stored results; the same results give the same bytes."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter

from benchmarks.figures.figure import DEVICES
from benchmarks.figures.store import Stored

_STYLE = Path(__file__).with_name("figures.mplstyle")


def draw(stored: Stored, path: Path) -> None:
    """Draw one panel per device measured."""
    devices = stored.devices
    with mpl.rc_context(fname=_STYLE):
        canvas = Canvas(figsize=(4.8 * len(devices), 3.4), layout="constrained")
        panels = canvas.subplots(1, len(devices), squeeze=False)[0]
        for panel, device in zip(panels, devices, strict=True):
            _draw_panel(panel, stored, device)
            panel.set_title(f"on the {DEVICES[device]}")
        path.parent.mkdir(parents=True, exist_ok=True)
        canvas.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def _draw_panel(panel: Axes, stored: Stored, device: str) -> None:
    figure, curves = stored.figure, stored.curves(device)
    for name in figure.contenders:
        panel.plot(curves.x, curves[name], label=name)
    panel.set_xlabel(figure.sweep.label)
    panel.set_ylabel(figure.unit)
    if figure.sweep.is_logarithmic:
        panel.set_xscale("log")
    panel.set_xticks(curves.x, [f"{x:,g}" for x in curves.x])
    panel.minorticks_off()
    if figure.is_logarithmic:
        panel.set_yscale("log")
    else:
        panel.set_ylim(bottom=0)
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    panel.legend(fontsize="small")
