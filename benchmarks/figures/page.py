"""The page in the docs: each claim, the result and the verdict, from stored results alone."""

from collections.abc import Sequence
from itertools import groupby
from math import isnan
from pathlib import Path
from typing import Any

from benchmarks.figures.figure import DEVICES, Figure, Paper, Verdict
from benchmarks.figures.store import Stored

_INTRODUCTION = Path(__file__).with_name("introduction.md").read_text()


def write(folder: Path, figures: Sequence[Figure[Any]]) -> None:
    """Read the stored results and write the page."""
    results = [stored for figure in figures if (stored := Stored(folder, figure)).is_judged]
    parts = [_INTRODUCTION, _summary(results)]
    for _, group in groupby(results, key=lambda stored: stored.figure.paper.name):
        some = list(group)
        parts += [_paper(some[0].figure.paper), *(_section(stored) for stored in some)]
    (folder / "README.md").write_text("\n".join(parts))


def _summary(results: Sequence[Stored]) -> str:
    lines = ["| figure | the paper's claim | here | verdict |", "|---|---|---|---|"]
    for stored in results:
        figure, verdict = stored.figure, stored.verdict
        lines.append(
            f"| [{figure.name}](#{figure.name}) | {figure.claim} | {verdict.number} | {_word(verdict)} |"
        )
    return "\n".join(lines) + "\n"


def _word(verdict: Verdict) -> str:
    return "holds" if verdict.holds else "**does not hold**"


def _paper(paper: Paper) -> str:
    return f"## {paper.citation}\n\n{paper.setting}\n"


def _section(stored: Stored) -> str:
    figure, verdict = stored.figure, stored.verdict
    parts = [
        f"### {figure.name}",
        f"{figure.title}.",
        f"![{figure.title}]({figure.name}.svg)",
        f"- The paper: {figure.claim}\n- Here: {verdict.number}\n- Verdict: {_word(verdict)}"
        + (f". {verdict.why}" if verdict.why else ""),
        *(_table(stored, device) for device in stored.devices),
        _origin(stored),
    ]
    return "\n\n".join(parts) + "\n"


def _table(stored: Stored, device: str) -> str:
    figure, curves = stored.figure, stored.curves(device)
    where = f"{figure.unit}, on the {DEVICES[device]}"
    lines = [
        f"| {figure.sweep.label} | " + " | ".join(f"{x:g}" for x in curves.x) + " |",
        "|---" * (len(curves.x) + 1) + "|",
    ]
    lines += [
        f"| {name} | " + " | ".join(_number(value) for value in curves[name]) + " |"
        for name in figure.contenders
    ]
    return f"{where}:\n\n" + "\n".join(lines)


def _number(value: float) -> str:
    if isnan(value):
        return "not measured"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _origin(stored: Stored) -> str:
    origins = dict.fromkeys(
        f"{row['device']}: {row['run']}, commit {row['commit']}, seed {row['seed']}, scale 1:{row['scale']}, "
        f"{row['machine']}"
        for row in stored.rows
    )
    return "\n".join(f"<sub>{origin}</sub>" for origin in origins)
