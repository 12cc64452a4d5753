"""All figures: every module named `figure_*` or `table_*` below this package declares one."""

import importlib
import pkgutil
from collections.abc import Sequence
from functools import cache
from typing import Any

import benchmarks.figures
from benchmarks.figures.figure import Figure


@cache
def figures() -> dict[str, Figure[Any]]:
    """The figures by name, in the order of papers and numbers."""
    found = {}
    for module in pkgutil.walk_packages(benchmarks.figures.__path__, "benchmarks.figures."):
        if module.name.rpartition(".")[2].startswith(("figure_", "table_")):
            figure: Figure[Any] = importlib.import_module(module.name).FIGURE
            found[figure.name] = figure
    return found


def chosen(names: Sequence[str]) -> list[Figure[Any]]:
    """The figures of these names, or whose names begin so; all if there are no names."""
    known = figures()
    for name in names:
        if not any(each.startswith(name) for each in known):
            raise SystemExit(f"there is no figure {name}; there are {', '.join(known)}")
    return [figure for figure in known.values() if not names or figure.name.startswith(tuple(names))]
