"""Measures figures, curve by curve, in a given number of processes."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from benchmarks.figures.catalogue import figures
from benchmarks.figures.figure import Figure, Measurement, World
from benchmarks.harness.results import Result


@dataclass(frozen=True)
class Curve:
    """One contender of a figure, measured.

    Attributes:
        figure: The figure.
        contender: The contender.
        points: Its points.
        seconds: The time of its points, except those measured for another curve.
    """

    figure: str
    contender: str
    points: tuple[Result, ...]
    seconds: float


@dataclass(frozen=True)
class Task:
    """Some points of a curve.

    Attributes:
        figure: The figure.
        contender: The contender.
        world: Where it is measured.
        x: The points.
    """

    figure: str
    contender: str
    world: World
    x: tuple[float, ...]


@dataclass
class _Part:
    """A curve, with the curve that each point is measured for and its position there."""

    task: Task
    sources: list[tuple[int, int]]


def measure(names: Sequence[tuple[Figure[Any], World]], processes: int) -> Iterator[Curve]:
    """The curves of all figures as they complete; a point that several share is measured once."""
    parts = _parts(names)
    done: dict[int, tuple[list[Measurement], float]] = {}
    told: set[int] = set()
    for number, measured, seconds in _measured([part.task for part in parts], processes):
        done[number] = measured, seconds
        for at, part in enumerate(parts):
            if at not in told and all(source in done for source, _ in part.sources) and at in done:
                told.add(at)
                yield _curve(part, done, done[at][1])


def measure_curve(figure_name: str, contender: str, world: World) -> Curve:
    """All points of one contender."""
    x = figures()[figure_name].sweep.values
    task = Task(figure_name, contender, world, x)
    _, measured, seconds = _measure_task((0, task))
    return _curve(_Part(task, [(0, at) for at in range(len(x))]), {0: (measured, seconds)}, seconds)


def _parts(names: Sequence[tuple[Figure[Any], World]]) -> list[_Part]:
    parts: list[_Part] = []
    known: list[tuple[Any, tuple[int, int]]] = []
    for figure, world in names:
        for contender, setting in figure.contenders.items():
            own: list[float] = []
            sources = []
            for x in figure.sweep.values:
                facts = figure.measure, figure.sweep.at(setting, x), world
                source = next((source for others, source in known if others == facts), None)
                if source is None:
                    source = len(parts), len(own)
                    known.append((facts, source))
                    own.append(x)
                sources.append(source)
            parts.append(_Part(Task(figure.name, contender, world, tuple(own)), sources))
    return parts


def _measured(tasks: Sequence[Task], processes: int) -> Iterator[tuple[int, list[Measurement], float]]:
    if processes == 1:
        yield from map(_measure_task, enumerate(tasks))
        return
    with get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(_measure_task, enumerate(tasks))


def _measure_task(numbered: tuple[int, Task]) -> tuple[int, list[Measurement], float]:
    number, task = numbered
    figure = figures()[task.figure]
    setting = figure.contenders[task.contender]
    began = time.process_time()
    measured = [figure.measure(figure.sweep.at(setting, x), task.world) for x in task.x]
    return number, measured, time.process_time() - began


def _curve(part: _Part, done: dict[int, tuple[list[Measurement], float]], seconds: float) -> Curve:
    task, points = part.task, []
    for x, (source, at) in zip(figures()[task.figure].sweep.values, part.sources, strict=True):
        measured = done[source][0][at]
        metrics = dict(measured.details)
        points.append({"contender": task.contender, "x": x, "value": measured.value, "metrics": metrics})
    return Curve(task.figure, task.contender, tuple(points), seconds)
