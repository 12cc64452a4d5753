"""Results on disk: one file per figure, one row per point."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures.figure import Curves, Figure
from benchmarks.harness.results import Result, Row, Table, read

SIMULATED, REAL = "simulated", "real"

TABLE = Table(
    columns=(
        "run",
        "commit",
        "machine",
        "seed",
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
    """Put in what was measured on one device, keep what was measured on the other."""
    TABLE.replace(path_of(folder, figure), {device}, list(rows))


class Stored:
    """The results of a figure, as they were stored.

    Attributes:
        rows: The rows, those of the simulated device first.
    """

    def __init__(self, folder: Path, figure: Figure[Any]) -> None:
        path = path_of(folder, figure)
        rows = read(path) if path.exists() else []
        self.figure = figure
        self.rows: list[Row] = sorted(rows, key=lambda row: row["device"] == REAL)

    def has(self, device: str) -> bool:
        """Whether it was measured on this device."""
        return any(row["device"] == device for row in self.rows)

    def curves(self, device: str = SIMULATED) -> Curves:
        """The values over the sweep."""
        values = {
            (row["contender"], float(row["x"])): float(row["value"])
            for row in self.rows
            if row["device"] == device
        }
        x = self.figure.sweep.values
        return Curves(x, {name: [values[name, at] for at in x] for name in self.figure.contenders})

    def details(self, contender: str, x: float) -> dict[str, float]:
        """What explains a point."""
        for row in self.rows:
            if row["device"] == SIMULATED and row["contender"] == contender and float(row["x"]) == x:
                return dict(json.loads(row["metrics"]))
        raise KeyError((contender, x))
