"""Writes the page in the docs from the CSV file and the contenders' current settings."""

import statistics
from pathlib import Path

from benchmarks.harness import page
from benchmarks.harness.results import Row, read
from benchmarks.streamjoin_spark.cases import FLINK, GOALS, SETTINGS, Goal
from benchmarks.streamjoin_spark.contenders.catalogue import contender_class
from benchmarks.streamjoin_spark.flink import contenders as flink
from benchmarks.streamjoin_spark.shapes import DELAY_SECONDS, OUT_OF_ORDER_SECONDS, ROW_BYTES

_INTRODUCTION = f"""# Streams joined on Spark, against Spark's own join and Flink

Written by `make bench-streamjoin-spark` from [streamjoin_spark.csv](streamjoin_spark.csv); do not edit.

Rows have {ROW_BYTES} bytes: what is joined, an event time where there is a bound, a number, a string of
random letters. Every input is a folder of Parquet files, one for each micro-batch. Spark runs as `local[2]`
and sends the result to the `noop` sink.

- *Equality*: orders and payments by a 64-bit id, random or growing. A payment comes up to an hour of event
  time after its order, 2 % come later and must not be found. Rows arrive up to {OUT_OF_ORDER_SECONDS} s out
  of order, watermarks are delayed by {DELAY_SECONDS} s, so no row is late. A micro-batch covers a quarter
  of an hour, or three minutes in the setting "state": state neither grows nor shrinks while times are
  taken. Except in the setting "state", our join gets 512 MB, so that everything fits.
- *Band*: offers and bids whose prices differ by little, within an hour; a bid meets one offer on average.
- *Range*: points and intervals, without event times, so that state grows; a point meets up to one short
  interval on average. Of the second kind, 1 % of the intervals are a hundred times as long.
- *Chain*: `r1.a = r2.a`, `r2.b = r3.b`, `r3.c = r4.c`, without event times; every relation has every key
  once.

Times are those of Spark's query progress: `addBatch` is the work on the rows, `triggerExecution` the whole
micro-batch including offset and commit logs; the median of the micro-batches after the warm-up counts, and
the median of the repetitions. Rows per second count all inputs; Flink knows no micro-batches, so its rate
is that of the same rows after the same warm-up. Peak memory is that of all processes together, pages that
several of them share counted once; its growth is the median of the last quarter of the time against that of
the quarter before, 1 where memory is flat. State is what Spark's operators report for themselves: memory,
and files of RocksDB. The checkpoint is measured when the query has ended.

Every contender runs in a process of its own; contenders take turns. Every micro-batch is checked as it is
timed: the number of rows and two sums, one over the pairs of row numbers, one over a hash of all columns,
are observed on their way to the sink. The pairs must be those of DuckDB's join of all files, for Flink too;
the other sums must be the same for all contenders on Spark, micro-batch by micro-batch. The plan must be
the one that the contender's name promises.
"""
_HEADINGS = (
    "case",
    "contender",
    "runs",
    "addBatch s",
    "range",
    "triggerExecution s",
    "range",
    "rows / s",
    "peak MB",
    "of which Java",
    "growth",
    "state memory MB",
    "state files MB",
    "checkpoint MB",
)
_GAP = (
    "Recovery is not measured yet: the time from killing the warm operator, or its executor, to the end of "
    "the next micro-batch.\n"
)
_MEASURES = {"add_batch_seconds": "addBatch", "trigger_seconds": "triggerExecution"}


def write(csv_path: Path, markdown_path: Path) -> None:
    """Read the results and write the page."""
    rows = read(csv_path)
    parts = [_INTRODUCTION, page.origin(rows), "## Goals\n", _goals(rows), _GAP]
    parts += [_section(setting, [row for row in rows if row["setting"] == setting]) for setting in SETTINGS]
    parts += ["## Contenders\n", page.contenders(rows, _settings)]
    page.write(markdown_path, parts)


def _settings(name: str) -> str:
    return flink.SETTINGS[name] if name in FLINK else contender_class(name).settings


def _goals(rows: list[Row]) -> str:
    lines = [
        "| setting | case | goal | by | ours | fastest of Spark's | times as fast | reached |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for goal in GOALS:
        mine = [row for row in rows if row["setting"] == goal.setting]
        for case in dict.fromkeys(row["case"] for row in mine):
            for measure in _MEASURES:
                lines += _goal(goal, measure, case, [row for row in mine if row["case"] == case])
    return "\n".join(lines) + "\n"


def _goal(goal: Goal, measure: str, case: str, rows: list[Row]) -> list[str]:
    """A line, if both sides were measured."""
    medians = {
        name: statistics.median(numbers)
        for name in (goal.ours, *goal.others)
        if (numbers := _numbers([row for row in rows if row["contender"] == name], measure))
    }
    others = [name for name in goal.others if name in medians]
    if goal.ours not in medians or not others:
        return []
    fastest = min(others, key=medians.__getitem__)
    ratio = medians[fastest] / max(medians[goal.ours], 1e-9)
    reached = "yes" if ratio >= goal.bound else "**no**"
    cells = (
        goal.setting,
        case,
        f"at least {goal.bound:g} x",
        _MEASURES[measure],
        f"{medians[goal.ours]:.3f} s",
        f"{fastest} {medians[fastest]:.3f} s",
        f"{ratio:.2f}",
        reached,
    )
    return [f"| {' | '.join(cells)} |"]


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
    start = f"| {row['case']} | {row['contender']} | {len(group)}"
    failures = [each["failure"] for each in group if each["failure"]]
    if failures:
        said = failures[0] if failures[0].startswith("skipped") else f"failed: {failures[0]}"
        return f"{start} | {said} {'| ' * (len(_HEADINGS) - 3)}|"
    rates = _numbers(group, "rows_per_second")
    cells = [
        *_with_range(group, "add_batch_seconds"),
        *_with_range(group, "trigger_seconds"),
        f"{statistics.median(rates):,.0f}" if rates else "",
        _megabytes(group, "peak_bytes"),
        _megabytes(group, "peak_java_bytes"),
        _with_range(group, "memory_growth")[0],
        *(_megabytes(group, f"{what}_bytes") for what in ("state_memory", "state_disk", "checkpoint")),
    ]
    return f"{start} | {' | '.join(cells)} |"


def _megabytes(group: list[Row], measure: str) -> str:
    numbers = _numbers(group, measure)
    return f"{max(numbers) / (1 << 20):,.0f}" if numbers else ""


def _with_range(group: list[Row], measure: str) -> tuple[str, str]:
    numbers = _numbers(group, measure)
    if not numbers:
        return "", ""
    spread = f"{min(numbers):.3f} to {max(numbers):.3f}" if len(numbers) > 1 else ""
    return f"{statistics.median(numbers):.3f}", spread


def _numbers(rows: list[Row], measure: str) -> list[float]:
    return [float(row[measure]) for row in rows if not row["failure"] and row[measure]]
