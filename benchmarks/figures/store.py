"""Results on disk: one file per figure, one row per point."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures.figure import REAL, Curves, Figure, Verdict
from benchmarks.harness.results import ORIGIN, Result, Row, Table, read

TABLE = Table(
    columns=(
        *ORIGIN,
        "scale",
        "figure",
        "device",
        "contender",
        "x",
        "value",
        "metrics",
    ),
    part="device",
)


def path_of(folder: Path, figure: Figure[Any]) -> Path:
    """Where the results of a figure are."""
    return folder / "data" / f"{figure.name}.csv"


def write(folder: Path, figure: Figure[Any], device: str, rows: Sequence[Result]) -> None:
    """Replace the measurements on one device, keep those on the other."""
    TABLE.replace(path_of(folder, figure), {device}, list(rows))


class Stored:
    """The stored results of a figure.

    Attributes:
        rows: The rows, those of the simulated device first.
    """

    def __init__(self, folder: Path, figure: Figure[Any]) -> None:
        path = path_of(folder, figure)
        rows = read(path) if path.exists() else []
        self.figure = figure
        self.rows: list[Row] = sorted(rows, key=lambda row: row["device"] == REAL)

    def curves(self, device: str) -> Curves:
        """The values over the sweep."""
        values = {
            (row["contender"], float(row["x"])): float(row["value"])
            for row in self.rows
            if row["device"] == device
        }
        x = self.figure.sweep.values
        return Curves(x, {name: [values[name, at] for at in x] for name in self.figure.contenders})

    @property
    def devices(self) -> list[str]:
        """The devices the figure was measured on."""
        return [device for device in self.figure.devices if any(row["device"] == device for row in self.rows)]

    @property
    def is_judged(self) -> bool:
        """Whether there are results for the verdict."""
        return self.figure.devices[0] in self.devices

    @property
    def verdict(self) -> Verdict:
        """The verdict on these results."""
        return self.figure.verdict(self.curves(self.figure.devices[0]))
