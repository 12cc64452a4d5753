"""Writes the page in the docs from the CSV file and the contenders' current settings."""

import statistics
from pathlib import Path

from benchmarks.harness import page
from benchmarks.harness.results import Row, read
from benchmarks.spark.cases import GOALS, SETTINGS, Goal, Side
from benchmarks.spark.contenders.catalogue import contender_class

_INTRODUCTION = """# enrich against Spark's own join

Written by `make bench-spark` from [spark.csv](spark.csv); do not edit.

A stream of sales (key, number, amount; 24 bytes) is joined with a master of 120 bytes per row: key, surrogate
key, price, and a string of 96 bytes. Keys are Zipf-1 over a random permutation of the master's keys; for the
setting "balance" the hottest keys are neighbors. Spark runs as `local[2]`; the stream comes from Parquet
files, two per micro-batch, and goes to the `noop` sink. Times are those of Spark's query progress: `addBatch`
is the work on the rows, `triggerExecution` the whole micro-batch including offset and commit logs. Every
contender runs in a fresh application of its own; contenders take turns. The median of the batches after the
warm-up counts, and the median of the repetitions. `enrich` gets 5 % of the master's bytes; the others have no
limit, and the system's page cache has room for all files.

Balance compares the run times of tasks in Spark's event log, as the median over micro-batches; for an even
number of tasks the lower of the two middle values is the median, which is stricter than their mean.

Every contender's first batches run once more with files as the sink, and DuckDB compares their number of rows
and a hash of all columns with its own join; the plan of the last micro-batch must be the one that the
contender's name promises.
"""
_HEADINGS = (
    "case",
    "master rows",
    "contender",
    "runs",
    "batches",
    "addBatch s",
    "range",
    "triggerExecution s",
    "range",
    "slowest / median task",
    "most / median rows",
    "kept MB",
)
_MEASURES = {
    "add_batch_seconds": "addBatch",
    "trigger_seconds": "triggerExecution",
    "slowest_to_median": "task run time",
}


def write(csv_path: Path, markdown_path: Path) -> None:
    """Read the results and write the page."""
    rows = read(csv_path)
    parts = [_INTRODUCTION, page.origin(rows), "## Goals\n", _goals(rows)]
    parts += [_section(setting, [row for row in rows if row["setting"] == setting]) for setting in SETTINGS]
    parts += ["## Contenders\n", page.contenders(rows, lambda name: contender_class(name).settings)]
    page.write(markdown_path, parts)


def _goals(rows: list[Row]) -> str:
    lines = [
        "| setting | goal | by | bound | measured | against | ratio | reached |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for goal in GOALS:
        lines += [line for measure in goal.measures if (line := _goal(goal, measure, rows))]
    return "\n".join(lines) + "\n"


def _goal(goal: Goal, measure: str, rows: list[Row]) -> str:
    mine = [row for row in rows if row["setting"] == goal.setting]
    over = _side(goal.over, measure, mine)
    under = _side(goal.under, measure, mine) if goal.under else ("", 1.0)
    if over is None or under is None:
        return ""
    ratio = over[1] / max(under[1], 1e-9)
    reached = "yes" if goal.is_reached(ratio) else "**no**"
    bound = f"{'>=' if goal.at_least else '<='} {goal.bound:g}"
    case = f", {goal.over.case}" if goal.under is None else ""
    left = f"{over[0]} {_number(measure, over[1])}"
    right = f"{under[0]} {_number(measure, under[1])}" if goal.under else ""
    return (
        f"| {goal.setting}{case} | {goal.title} | {_MEASURES[measure]} | {bound} | {left} | {right} "
        f"| {ratio:.2f} | {reached} |"
    )


def _number(measure: str, value: float) -> str:
    return f"{value:.3f} s" if measure.endswith("_seconds") else f"{value:.2f}"


def _side(side: Side, measure: str, rows: list[Row]) -> tuple[str, float] | None:
    """The fastest contender of a side and its value; None if none was measured."""
    values = {}
    for name in side.contenders:
        found = [row for row in rows if (row["case"], row["contender"]) == (side.case, name)]
        if numbers := _numbers(found, measure):
            values[name] = statistics.median(numbers)
    return min(values.items(), key=lambda item: item[1]) if values else None


def _numbers(rows: list[Row], measure: str) -> list[float]:
    return [float(row[measure]) for row in rows if not row["failure"] and row[measure]]


def _section(setting: str, rows: list[Row]) -> str:
    if not rows:
        return ""
    lines = [
        f"## {SETTINGS[setting][0].upper()}{SETTINGS[setting][1:]}\n",
        f"| {' | '.join(_HEADINGS)} |",
        f"|{'---|' * len(_HEADINGS)}",
    ]
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["case"], row["contender"]), []).append(row)
    return "\n".join([*lines, *(_line(group) for group in groups.values())]) + "\n"


def _line(group: list[Row]) -> str:
    row = group[0]
    start = f"| {row['case']} | {int(row['master_rows']):,} | {row['contender']} | {len(group)}"
    failures = [each["failure"] for each in group if each["failure"]]
    if failures:
        return f"{start} | | failed: {failures[0]} | | | | | | |"
    batches = sum(int(each["batches"]) for each in group)
    held = f"{float(row['held_bytes']) / (1 << 20):,.0f}" if row["held_bytes"] else ""
    cells = [
        *_with_range(group, "add_batch_seconds", 3),
        *_with_range(group, "trigger_seconds", 3),
        _with_range(group, "slowest_to_median", 2)[0],
        _with_range(group, "rows_to_median", 2)[0],
        held,
    ]
    return f"{start} | {batches} | {' | '.join(cells)} |"


def _with_range(group: list[Row], measure: str, digits: int) -> tuple[str, str]:
    numbers = _numbers(group, measure)
    if not numbers:
        return "", ""
    spread = f"{min(numbers):.{digits}f} to {max(numbers):.{digits}f}" if len(numbers) > 1 else ""
    return f"{statistics.median(numbers):.{digits}f}", spread
