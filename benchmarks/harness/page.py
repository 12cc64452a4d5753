"""Parts of a page in the docs."""

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.harness.results import Row


def write(page: Path, parts: Sequence[str]) -> None:
    """Write all non-empty parts, and a link to the notes if there are any."""
    notes = page.with_name(f"{page.stem}_notes.md")
    link = f"What the profiles show: [{notes.stem}]({notes.name}).\n" if notes.exists() else ""
    page.write_text("\n".join(part for part in (*parts, link) if part))


def contenders(rows: list[Row], settings: Callable[[str], str]) -> str:
    """The settings of each contender, in the order of their results."""
    names = dict.fromkeys(row["contender"] for row in rows)
    return "\n".join(f"- **{name}**: {settings(name)}" for name in names) + "\n"


def origin(rows: list[Row]) -> str:
    """The runs that the rows come from, and what each of them measured."""
    runs: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        runs.setdefault((row["run"], row["commit"], row["seed"], row["machine"]), []).append(row)
    lines = []
    for (run, commit, seed, machine), group in sorted(runs.items()):
        settings = ", ".join(dict.fromkeys(row["setting"] for row in group))
        load = max((float(row["load_average"]) for row in group if row["load_average"]), default=0.0)
        lines.append(
            f"- {run}, commit {commit}, seed {seed}, {machine}: {settings} (load average up to {load:.1f})"
        )
    return "\n".join(lines) + "\n"
