from pathlib import Path

from benchmarks.engine import report
from benchmarks.engine.results import TABLE
from benchmarks.harness.results import read


def row(goal: str, contender: str, speed: float, **more: object) -> dict[str, object]:
    return {
        "run": "now",
        "commit": "abc",
        "seed": 1,
        "machine": "two cores",
        "goal": goal,
        "stream": "exist",
        "batch_rows": 10_000,
        "master_rows": 1,
        "contender": contender,
        "variant": "",
        "repetition": 1,
        "cap": "enforced",
        "rows_per_second": speed,
        "batch_seconds_median": 1.0,
        "peak_bytes": 1,
        "failure": "",
        **more,
    }


def page(folder: Path, rows: list[dict[str, object]]) -> list[str]:
    TABLE.replace(folder / "engine.csv", {str(each["goal"]) for each in rows}, rows)
    report.write(folder / "engine.csv", folder / "engine.md")
    return (folder / "engine.md").read_text().splitlines()


def verdicts(lines: list[str]) -> list[str]:
    return [line for line in lines if line.endswith(("reached |", "**missed** |"))]


def test_the_best_variant_of_the_best_rival_counts(tmp_path: Path) -> None:
    rows = [
        row("small", "ssij drained", 499.0),
        row("small", "ssij streaming", 500.0),
        row("small", "lmdb", 7.0, variant="slow"),
        row("small", "lmdb", 100.0, variant="fast"),
        row("small", "duckdb", 99.0),
        row("small", "sqlite", 0.0, failure="ended by signal 9"),
    ]
    streaming, drained = verdicts(page(tmp_path, rows))
    assert "| lmdb | 100 | 5.00 | 5.0 | reached |" in streaming
    assert "| 4.99 | 5.0 | **missed** |" in drained


def test_repetitions_count_by_their_median(tmp_path: Path) -> None:
    rows = [row("cached", "ssij drained", 50.0)]
    rows += [row("cached", "polars", speed, repetition=n) for n, speed in enumerate((90.0, 1000.0, 100.0))]
    assert "| polars | 100 | 0.50 |" in verdicts(page(tmp_path, rows))[0]


def test_absent_keys_are_compared_with_the_same_mode_where_all_exist(tmp_path: Path) -> None:
    rows = [
        row("absent", "ssij drained", 100.0),
        row("absent", "ssij drained", 79.0, stream="absent"),
        row("absent", "ssij streaming", 10.0),
        row("absent", "ssij streaming", 8.0, stream="absent"),
    ]
    streaming, drained = verdicts(page(tmp_path, rows))
    assert "| 0.80 | 0.8 | reached |" in streaming
    assert "| 0.79 | 0.8 | **missed** |" in drained


def test_a_goal_measured_again_replaces_its_rows_and_no_others(tmp_path: Path) -> None:
    page(tmp_path, [row("small", "lmdb", 1.0), row("large", "lmdb", 2.0)])
    page(tmp_path, [row("small", "lmdb", 3.0)])
    speeds = {each["goal"]: float(each["rows_per_second"]) for each in read(tmp_path / "engine.csv")}
    assert speeds == {"small": 3.0, "large": 2.0}


def test_a_cap_that_was_not_enforced_is_reported(tmp_path: Path) -> None:
    lines = page(tmp_path, [row("small", "lmdb", 1.0, cap="not enforced: no memory controller is mounted")])
    assert any("The cap was not enforced" in line for line in lines)
