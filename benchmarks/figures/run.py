"""Measures figures, curve by curve, in as many processes as are asked for."""

import time
from collections.abc import Iterator, Sequence
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


Task = tuple[str, str, World]
"""A figure, a contender, and where."""


def measure(names: Sequence[tuple[Figure[Any], World]], processes: int) -> Iterator[Curve]:
    """The curves of all figures, as they are done; what stands in several figures is measured once."""
    same = _same_curves(names)
    tasks = [group[0] for group in same]
    if processes == 1:
        for task, group in zip(tasks, same, strict=True):
            yield from _copies(measure_curve(*task), group)
        return
    shared = {task[:2]: group for task, group in zip(tasks, same, strict=True)}
    with get_context("spawn").Pool(processes) as pool:
        for curve in pool.imap_unordered(_measure_task, tasks):
            yield from _copies(curve, shared[curve.figure, curve.contender])


def _same_curves(names: Sequence[tuple[Figure[Any], World]]) -> list[list[Task]]:
    """The curves to measure, those with the same settings together."""
    groups: list[tuple[Any, list[Task]]] = []
    for figure, world in names:
        for contender, setting in figure.contenders.items():
            settings = [figure.sweep.at(setting, x) for x in figure.sweep.values]
            facts = figure.measure, figure.sweep.values, settings, world
            group = next((group for others, group in groups if others == facts), None)
            if group is None:
                group = []
                groups.append((facts, group))
            group.append((figure.name, contender, world))
    return [group for _, group in groups]


def _copies(curve: Curve, group: Sequence[Task]) -> Iterator[Curve]:
    for number, (figure, contender, _) in enumerate(group):
        points = tuple({**point, "contender": contender} for point in curve.points)
        yield Curve(figure, contender, points, 0.0 if number else curve.seconds)


def _measure_task(task: Task) -> Curve:
    return measure_curve(*task)


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
