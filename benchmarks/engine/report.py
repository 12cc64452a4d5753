"""Writes the page in the docs from the CSV file and the contenders' current settings."""

import statistics
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from benchmarks.engine.cases import GOALS, OURS, Goal
from benchmarks.engine.contenders.catalogue import contender_class
from benchmarks.harness import page
from benchmarks.harness.results import Row, read

_INTRODUCTION = """# SSIJ against other engines

Written by `make bench-engine` from [engine.csv](engine.csv); do not edit.

Master rows have 120 bytes: key, surrogate key, price, and a string of 96 bytes. Stream keys are Zipf-1 over a
random permutation of the master's keys; all four columns are returned as Arrow. Every contender runs alone in
its own process, first warmed up on the same stream, then measured on the same batches. Every row returned is
checked against the oracle, outside the measured time. With a cap, the process runs in a memory control group
that counts the page cache too, and the data set is evicted from the page cache first. All variants of a
contender run once, the best one is repeated, and the median of its repetitions counts.
"""


def write(csv_path: Path, markdown_path: Path) -> None:
    """Read the results and write the page."""
    rows = read(csv_path)
    parts = [_INTRODUCTION, _origin(rows), "## Verdicts\n", _verdicts(rows)]
    parts += [_goal_section(goal, [row for row in rows if row["goal"] == goal]) for goal in GOALS]
    parts += ["## Settings\n", page.contenders(rows, lambda name: contender_class(name).settings)]
    page.write(markdown_path, parts)


def _origin(rows: list[Row]) -> str:
    lines = sorted(
        {f"- {row['run']}, commit {row['commit']}, seed {row['seed']}, {row['machine']}" for row in rows}
    )
    caps = sorted({row["cap"] for row in rows if row["cap"].startswith("not")})
    return "\n".join([*lines, *(f"- **The cap was {cap}**" for cap in caps)]) + "\n"


def _verdicts(rows: list[Row]) -> str:
    lines = [
        "| goal | batch rows | SSIJ | rows/s | against | rows/s | ratio | goal | verdict |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, goal in GOALS.items():
        mine = [row for row in rows if row["goal"] == name]
        for size in sorted({int(row["batch_rows"]) for row in mine}):
            sized = [row for row in mine if int(row["batch_rows"]) == size]
            lines += [line for ours in OURS if (line := _verdict(goal, size, ours, sized))]
    return "\n".join(lines) + "\n"


def _verdict(goal: Goal, size: int, ours: str, rows: list[Row]) -> str:
    own = [row for row in rows if row["contender"] == ours]
    if goal.rival_stream:
        rivals = {f"all present, {ours}": [row for row in own if row["stream"] == goal.rival_stream]}
        own = [row for row in own if row["stream"] != goal.rival_stream]
    else:
        rivals = {name: [row for row in rows if row["contender"] == name] for name in goal.rivals}
    speeds = {name: _speed(group) for name, group in rivals.items() if group}
    if not own or not speeds:
        return ""
    rival = max(speeds, key=lambda name: speeds[name])
    ratio = _speed(own) / speeds[rival] if speeds[rival] else float("inf")
    verdict = "reached" if ratio >= goal.least_ratio else "**missed**"
    return (
        f"| {goal.title} | {size:,} | {ours} | {_speed(own):,.0f} | {rival} | {speeds[rival]:,.0f} "
        f"| {ratio:.2f} | {goal.least_ratio} | {verdict} |"
    )


def _speed(rows: list[Row]) -> float:
    """Rows per second of the best variant, as the median of its repetitions."""
    return max(statistics.median(_speeds(group)) for _, group in _by_variant(rows))


def _by_variant(rows: list[Row]) -> Iterable[tuple[str, list[Row]]]:
    ordered = sorted(rows, key=lambda row: row["variant"])
    return [(variant, list(group)) for variant, group in groupby(ordered, key=lambda row: row["variant"])]


def _speeds(rows: Iterable[Row]) -> list[float]:
    return [float(row["rows_per_second"]) for row in rows]


def _goal_section(name: str, rows: list[Row]) -> str:
    if not rows:
        return ""
    lines = [
        f"## {GOALS[name].title}\n",
        "| stream | master | batch | contender | variant | runs | rows/s | range | s/batch | peak MB | cap |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    seen: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        seen.setdefault((row["stream"], row["batch_rows"], row["contender"], row["variant"]), []).append(row)
    return "\n".join([*lines, *(_line(group) for group in seen.values())]) + "\n"


def _line(group: list[Row]) -> str:
    row, speeds = group[0], _speeds(group)
    sizes = f"{int(row['master_rows']):,} | {int(row['batch_rows']):,}"
    start = f"| {row['stream']} | {sizes} | {row['contender']} | {row['variant']}"
    if row["failure"]:
        return f"{start} | {len(group)} | failed: {row['failure']} | | | | {row['cap'].split(':')[0]} |"
    seconds = statistics.median(float(each["batch_seconds_median"]) for each in group)
    peak = max(float(each["peak_bytes"]) for each in group) / (1 << 20)
    spread = f"{min(speeds):,.0f} to {max(speeds):,.0f}" if len(group) > 1 else ""
    return (
        f"{start} | {len(group)} | {statistics.median(speeds):,.0f} | {spread} | {seconds:.4f} | {peak:,.0f} "
        f"| {row['cap'].split(':')[0]} |"
    )
