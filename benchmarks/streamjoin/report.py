"""Writes the page in the docs from the CSV file."""

import json
import statistics
from pathlib import Path

from benchmarks.harness import page
from benchmarks.harness.results import Row, read
from benchmarks.streamjoin import chains
from benchmarks.streamjoin.contenders import SETTINGS
from benchmarks.streamjoin.inputs import KINDS, ROW_BYTES

_INTRODUCTION = f"""# Joins of streams

Written by `make bench-streamjoin` from [streamjoin.csv](streamjoin.csv); do not edit.

Two inputs, or a chain of four, with rows of {ROW_BYTES} bytes: keys, number, payload; all columns are
returned as Arrow. Each contender runs alone in its own process, on one core. All of them return the same
rows: their number and a checksum over them are compared. The median of the repetitions counts.
"""
_GOAL_TIMES, _GOAL_RATE = 3.0, 1e6


def write(csv_path: Path, markdown_path: Path) -> None:
    """Read the results and write the page."""
    rows = read(csv_path)
    parts = [_INTRODUCTION, _origin(rows), "## Verdicts\n", _verdicts(rows), "## Results\n", _table(rows)]
    parts += ["## Settings\n", page.contenders(rows, SETTINGS.__getitem__), _kinds()]
    page.write(markdown_path, parts)


def _origin(rows: list[Row]) -> str:
    return (
        "\n".join(
            sorted(
                {
                    f"- {row['run']}, commit {row['commit']}, seed {row['seed']}, {row['machine']}"
                    for row in rows
                }
            )
        )
        + "\n"
    )


def _kinds() -> str:
    return "\n".join(f"- *{name}*: {text}" for name, text in {**KINDS, **chains.KINDS}.items()) + "\n"


def _of(rows: list[Row], kind: str, contender: str) -> list[Row]:
    return [row for row in rows if row["kind"] == kind and row["contender"] == contender]


def _median(rows: list[Row], column: str) -> float:
    return statistics.median(float(row[column]) for row in rows)


def _verdicts(rows: list[Row]) -> str:
    lines = ["| keys | what | DINER, MINER | goal | verdict |", "|---|---|---|---|---|"]
    for kind in dict.fromkeys(row["kind"] for row in rows):
        if kind in chains.KINDS:
            lines += _chain_verdicts(rows, kind)
            continue
        diner, duck, symmetric = (_of(rows, kind, name) for name in ("DINER", "DuckDB", "SymmetricHashJoin"))
        times = _median(diner, "seconds") / _median(duck, "seconds")
        rate = 2 * int(diner[0]["input_rows"]) / _median(diner, "arriving_seconds")
        early = _median(diner, "early_rows") / _median(symmetric, "early_rows")
        facts = (
            ("time to the complete result / DuckDB's", f"{times:.2f}", "at most 3", times <= _GOAL_TIMES),
            ("rows per second while they arrive", f"{rate:,.0f}", "1,000,000", rate >= _GOAL_RATE),
            ("results before the inputs end / those in unlimited memory", f"{early:.3f}", "", None),
        )
        lines += [
            f"| {kind} | {what} | {here} | {goal} | {_word(done)} |" for what, here, goal, done in facts
        ]
    return "\n".join(lines) + "\n"


def _chain_verdicts(rows: list[Row], kind: str) -> list[str]:
    miner, cascade = (_of(rows, kind, name) for name in ("MINER", "DINER cascade"))
    ratios = [
        mine / max(theirs, 1)
        for mine, theirs in zip(
            *(json.loads(each[0]["metrics"])["progress"] for each in (miner, cascade)), strict=True
        )
    ]
    times = _median(miner, "seconds") / _median(cascade, "seconds")
    rate = 4 * int(miner[0]["input_rows"]) / _median(miner, "arriving_seconds")
    facts = (
        (
            "results so far at every tenth of the input / the cascade's",
            f"{min(ratios):.2f} to {max(ratios):.2f}",
            "above 1",
            min(ratios) > 1,
        ),
        ("time to the complete result / the cascade's", f"{times:.2f}", "at most 1", times <= 1),
        ("rows per second while they arrive", f"{rate:,.0f}", "", None),
    )
    return [f"| {kind} | {what} | {here} | {goal} | {_word(done)} |" for what, here, goal, done in facts]


def _word(is_reached: bool | None) -> str:
    return {True: "reached", False: "**missed**", None: ""}[is_reached]


def _table(rows: list[Row]) -> str:
    lines = [
        "| keys | rows each | contender | memory MB | s | range | s arriving | results | early | peak MB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for kind, contender in dict.fromkeys((row["kind"], row["contender"]) for row in rows):
        group = _of(rows, kind, contender)
        row, seconds = group[0], [float(each["seconds"]) for each in group]
        arriving = f"{_median(group, 'arriving_seconds'):.2f}" if row["arriving_seconds"] else ""
        early = f"{int(float(row['early_rows'])):,}" if row["early_rows"] else ""
        peak = max(float(each["peak_bytes"]) for each in group) / (1 << 20)
        lines.append(
            f"| {kind} | {int(row['input_rows']):,} | {contender} | {int(row['memory_bytes']) >> 20} | "
            f"{statistics.median(seconds):.2f} | {min(seconds):.2f} to {max(seconds):.2f} | {arriving} | "
            f"{int(row['rows']):,} | {early} | {peak:,.0f} |"
        )
    return "\n".join(lines) + "\n"
