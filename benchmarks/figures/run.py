"""Measures figures, curve by curve, in as many processes as are asked for."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from benchmarks.figures.catalogue import figures
from benchmarks.figures.figure import Figure, World
from benchmarks.harness.results import Result


@dataclass(frozen=True)
class Curve:
    """One contender of a figure, measured."""

    figure: str
    contender: str
    points: tuple[Result, ...]
    seconds: float


def measure(names: Sequence[tuple[Figure[Any], World]], processes: int) -> Iterator[Curve]:
    """The curves of all figures, as they are done."""
    tasks = [(figure.name, contender, world) for figure, world in names for contender in figure.contenders]
    if processes == 1:
        yield from (measure_curve(*task) for task in tasks)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        running = [pool.submit(measure_curve, *task) for task in tasks]
        yield from (done.result() for done in as_completed(running))


def measure_curve(figure_name: str, contender: str, world: World) -> Curve:
    """All points of one contender."""
    figure = figures()[figure_name]
    setting = figure.contenders[contender]
    began = time.process_time()
    points = []
    for x in figure.sweep.values:
        measured = figure.measure(figure.sweep.at(setting, x), world)
        point = {"contender": contender, "x": x, "value": measured.value, "metrics": dict(measured.details)}
        points.append(point)
    return Curve(figure_name, contender, tuple(points), time.process_time() - began)
