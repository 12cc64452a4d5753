"""`python -m benchmarks.figures`: measure the papers' figures, draw them, write the page."""

import argparse
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import catalogue, draw, page, run, store
from benchmarks.figures.figure import REAL, SIMULATED, Figure, World
from benchmarks.harness.results import Result, describe_run
from benchmarks.harness.running import alone

_DOCS = Path(__file__).resolve().parents[2] / "docs" / "figures"


def _arguments() -> argparse.Namespace:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser = argparse.ArgumentParser(prog="python -m benchmarks.figures", description=__doc__)
    parser.add_argument("names", nargs="*", help="names of figures, or prefixes of them; all by default")
    parser.add_argument("--draw-only", action="store_true", help="only draw stored results")
    parser.add_argument("--real", action="store_true", help="measure on the disk of this machine")
    parser.add_argument("--scale", type=int, help="divide the papers' sizes by this factor")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--processes", type=int, default=2, help="processes that measure on the simulated disk"
    )
    parser.add_argument(
        "--data", type=Path, default=cache / "adjoin" / "figures", help="where masters are kept"
    )
    parser.add_argument("--docs", type=Path, default=_DOCS, help="where to write results, plots and the page")
    return parser.parse_args()


def main() -> None:
    """Measure the chosen figures and draw all of them."""
    arguments = _arguments()
    figures = catalogue.chosen(arguments.names)
    if not arguments.draw_only:
        with alone(arguments.data.resolve()):
            device = REAL if arguments.real else SIMULATED
            _measure(arguments, [figure for figure in figures if device in figure.devices], device)
    for figure in figures if arguments.draw_only else ():
        _draw(arguments.docs, figure)
    page.write(arguments.docs, list(catalogue.figures().values()))
    print(f"results: {arguments.docs / 'README.md'}", file=sys.stderr)


def _measure(arguments: argparse.Namespace, figures: Sequence[Figure[Any]], device: str) -> None:
    origin = {**describe_run(), "seed": arguments.seed, "device": device}
    worlds = {
        figure.name: World(
            arguments.scale or figure.paper.scale, arguments.data.resolve(), arguments.seed, arguments.real
        )
        for figure in figures
    }
    measured: dict[str, dict[str, list[Result]]] = defaultdict(dict)
    tasks = [(figure, worlds[figure.name]) for figure in figures]
    for curve in run.measure(tasks, 1 if arguments.real else arguments.processes):
        print(f"{curve.figure} {curve.contender}: {curve.seconds:.0f} s", flush=True)
        more = {**origin, "scale": worlds[curve.figure].scale, "figure": curve.figure}
        measured[curve.figure][curve.contender] = [{**more, **point} for point in curve.points]
        figure = catalogue.figures()[curve.figure]
        if len(measured[curve.figure]) == len(figure.contenders):
            curves = measured[curve.figure]
            rows = [row for name in figure.contenders for row in curves[name]]
            store.write(arguments.docs, figure, device, rows)
            _draw(arguments.docs, figure)


def _draw(docs: Path, figure: Figure[Any]) -> None:
    stored = store.Stored(docs, figure)
    if stored.is_judged:
        draw.draw(stored, docs / f"{figure.name}.svg")


if __name__ == "__main__":
    main()
