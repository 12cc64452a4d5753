from pathlib import Path

import pytest

from benchmarks.harness.results import read
from benchmarks.spark import report
from benchmarks.spark.cases import IDENTITY, OURS, ROUTED, SPARK_BROADCAST
from benchmarks.spark.results import TABLE


def row(setting: str, case: str, contender: str, seconds: float, **more: object) -> dict[str, object]:
    return {
        "run": "now",
        "commit": "abc",
        "seed": 1,
        "machine": "two cores",
        "setting": setting,
        "case": case,
        "master_rows": 20,
        "batch_rows": 10,
        "contender": contender,
        "repetition": 1,
        "batches": 3,
        "add_batch_seconds": seconds,
        "trigger_seconds": seconds + 0.1,
        "failure": "",
        **more,
    }


def page(folder: Path, rows: list[dict[str, object]]) -> list[str]:
    TABLE.replace(folder / "spark.csv", {str(each["setting"]) for each in rows}, rows)
    report.write(folder / "spark.csv", folder / "spark.md")
    return (folder / "spark.md").read_text().splitlines()


def goals(lines: list[str]) -> list[str]:
    return [line for line in lines if line.endswith(("| yes |", "| **no** |"))]


def test_the_faster_of_sparks_plans_counts_and_both_times_are_judged(tmp_path):
    rows = [
        row("small", "batches", OURS, 0.1),
        row("small", "batches", "spark sort-merge", 9.0),
        row("small", "batches", SPARK_BROADCAST, 0.9),
    ]
    add, trigger = goals(page(tmp_path, rows))
    assert "spark broadcast stream 0.900 s | enrich 0.100 s | 9.00 | yes |" in add
    assert "| triggerExecution |" in trigger
    assert trigger.endswith("| 5.00 | **no** |")


def test_repetitions_count_by_their_median(tmp_path):
    rows = [row("small", "batches", ROUTED, 0.1)]
    rows += [
        row("small", "batches", OURS, seconds, repetition=n) for n, seconds in enumerate((0.1, 9.0, 0.3))
    ]
    assert goals(page(tmp_path, rows))[0].endswith("| 3.00 | **no** |")


def test_growth_compares_the_same_contender_on_two_masters(tmp_path):
    rows = [row("growth", "base", OURS, 0.2), row("growth", "grown", OURS, 0.28)]
    assert goals(page(tmp_path, rows))[0].endswith("| 1.40 | yes |")


def test_a_cold_start_is_judged_against_both_identities(tmp_path):
    rows = [
        row("cold", "first batch", OURS, 1.5),
        row("cold", "first batch", ROUTED, 1.2),
        row("cold", "first batch", IDENTITY, 0.8),
    ]
    routed, _, plain, _ = goals(page(tmp_path, rows))
    assert routed.endswith("| 1.25 | yes |")
    assert plain.endswith("| 1.88 | **no** |")


@pytest.mark.parametrize(("value", "verdict"), [(2.0, "yes"), (2.1, "**no**")])
def test_balance_is_judged_by_the_slowest_task(tmp_path, value, verdict):
    rows = [row("balance", "4 partitions", OURS, 1.0, slowest_to_median=value)]
    (line,) = goals(page(tmp_path, rows))
    assert line.endswith(f"| {value:.2f} | {verdict} |")


def test_a_failure_is_shown_and_not_judged(tmp_path):
    rows = [
        row("small", "batches", SPARK_BROADCAST, 1.0),
        {**row("small", "batches", OURS, 0.0), "add_batch_seconds": "", "failure": "out of memory"},
    ]
    lines = page(tmp_path, rows)
    assert goals(lines) == []
    assert any("failed: out of memory" in line for line in lines)


def test_a_setting_measured_again_replaces_its_rows_and_no_others(tmp_path):
    page(tmp_path, [row("small", "batches", OURS, 1.0), row("large", "batches", OURS, 2.0)])
    page(tmp_path, [row("small", "batches", OURS, 3.0)])
    seconds = {each["setting"]: float(each["add_batch_seconds"]) for each in read(tmp_path / "spark.csv")}
    assert seconds == {"small": 3.0, "large": 2.0}
