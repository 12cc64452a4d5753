"""Reports the counts of campaigns on the terminal, in docs/reliability.csv and in docs/reliability.md."""

import csv
import os
import subprocess
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.torture.campaign import ROOT, Outcome

CSV = ROOT / "docs" / "reliability.csv"
DOCUMENT = ROOT / "docs" / "reliability.md"
COLUMNS = ("date", "commit", "seed", "minutes", "machine", "kind", "cases", "violations", "what", "count")
_BEGIN, _END = "<!-- counts -->\n", "<!-- end of counts -->"


def table(outcomes: Sequence[Outcome]) -> str:
    rows = [("kind", "cases", "seconds", "violations", "what was done")]
    for outcome in outcomes:
        counts = ", ".join(f"{count:,} {what}" for what, count in sorted(outcome.counts.items()))
        rows.append(
            (
                outcome.kind,
                f"{outcome.cases:,}",
                f"{outcome.seconds:.0f}",
                str(len(outcome.violations)),
                counts,
            )
        )
    widths = [max(len(row[at]) for row in rows) for at in range(4)]
    lines = []
    for kind, *numbers, counts in rows:
        cells = [
            kind.ljust(widths[0]),
            *(number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)),
        ]
        lines.append("  ".join([*cells, counts]))
    return "\n" + "\n".join(lines)


def write(outcomes: Sequence[Outcome], seed: int, minutes: float) -> None:
    """Add a run to the file, and regenerate the document's table from all its runs."""
    is_new = not CSV.exists()
    run = (f"{datetime.now(UTC):%Y-%m-%d}", _commit(), str(seed), f"{minutes:g}", _machine())
    with CSV.open("a", newline="") as file:
        writer = csv.writer(file)
        if is_new:
            writer.writerow(COLUMNS)
        for outcome in outcomes:
            counts = outcome.counts or {"cases that ended": 0}  # show a kind whose cases all failed
            for what, count in sorted(counts.items()):
                writer.writerow([*run, outcome.kind, outcome.cases, len(outcome.violations), what, count])
    if DOCUMENT.exists():
        before, rest = DOCUMENT.read_text().split(_BEGIN)
        DOCUMENT.write_text(before + _BEGIN + _counts(CSV) + _END + rest.split(_END)[1])


def _counts(path: Path) -> str:
    """The counts of all runs, by kind."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    cases: defaultdict[str, dict[tuple[str, ...], tuple[int, int]]] = defaultdict(dict)
    for row in rows:
        counts[row["kind"]][row["what"]] += int(row["count"])
        run = (row["date"], row["commit"], row["seed"], row["minutes"])
        cases[row["kind"]][run] = (int(row["cases"]), int(row["violations"]))
    lines = ["| kind | cases | violations | what was done |", "|---|---|---|---|"]
    for kind in counts:
        done = ", ".join(f"{count:,} {what}" for what, count in sorted(counts[kind].items()))
        in_all, bad = (sum(run[at] for run in cases[kind].values()) for at in (0, 1))
        lines.append(f"| {kind} | {in_all:,} | {bad} | {done} |")
    runs = sorted({(row["date"], row["commit"], row["seed"], row["minutes"], row["machine"]) for row in rows})
    lines += ["", "| date | commit | seed | minutes | machine |", "|---|---|---|---|---|"]
    lines += [f"| {' | '.join(run)} |" for run in runs]
    return "\n".join(lines) + "\n"


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=7"]
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return f"{len(os.sched_getaffinity(0))} cores, {memory:.0f} GB"
