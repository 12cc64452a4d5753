"""All figures: every module of this package named `figure_*` or `table_*` declares one."""

import importlib
import pkgutil
from collections.abc import Sequence
from functools import cache
from typing import Any

import benchmarks.figures
from benchmarks.figures.figure import Figure


@cache
def figures() -> dict[str, Figure[Any]]:
    """The figures by name, ordered by paper and number."""
    found = {}
    for module in pkgutil.walk_packages(benchmarks.figures.__path__, "benchmarks.figures."):
        if module.name.rpartition(".")[2].startswith(("figure_", "table_")):
            figure: Figure[Any] = importlib.import_module(module.name).FIGURE
            found[figure.name] = figure
    return found


def chosen(names: Sequence[str]) -> list[Figure[Any]]:
    """The figures with these names or prefixes; all if there are no names."""
    known = figures()
    for name in names:
        if not any(each.startswith(name) for each in known):
            raise SystemExit(f"there is no figure {name}; choose from {', '.join(known)}")
    return [figure for figure in known.values() if not names or figure.name.startswith(tuple(names))]
