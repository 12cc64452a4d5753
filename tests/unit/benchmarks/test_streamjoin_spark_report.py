from pathlib import Path

from benchmarks.streamjoin_spark import report
from benchmarks.streamjoin_spark.cases import OURS, OURS_MANY
from benchmarks.streamjoin_spark.results import TABLE


def row(setting: str, contender: str, seconds: float, **more: object) -> dict[str, object]:
    return {
        "run": "now",
        "commit": "abc",
        "seed": 1,
        "machine": "two cores",
        "setting": setting,
        "case": "equality, random",
        "contender": contender,
        "repetition": 1,
        "add_batch_seconds": seconds,
        "trigger_seconds": seconds + 0.1,
        "rows_per_second": 1_000,
        "peak_bytes": 5 << 20,
        "load_average": 0.5,
        "failure": "",
        **more,
    }


def page(folder: Path, rows: list[dict[str, object]]) -> list[str]:
    TABLE.replace(folder / "it.csv", {str(each["setting"]) for each in rows}, rows)
    report.write(folder / "it.csv", folder / "it.md")
    return (folder / "it.md").read_text().splitlines()


def goals(lines: list[str]) -> list[str]:
    return [line for line in lines if line.endswith(("| yes |", "| **no** |"))]


def test_the_fastest_of_sparks_joins_counts_and_both_times_are_judged(tmp_path):
    rows = [
        row("large", OURS, 0.1),
        row("large", "spark in memory", 9.0),
        row("large", "spark rocksdb v4", 0.9),
    ]
    add, trigger = goals(page(tmp_path, rows))
    assert add.endswith("| 0.100 s | spark rocksdb v4 0.900 s | 9.00 | yes |")
    assert trigger.endswith("| 0.200 s | spark rocksdb v4 1.000 s | 5.00 | yes |")


def test_every_case_of_a_setting_is_judged_by_its_own_rows(tmp_path):
    rows = []
    for case, seconds in (("equality, random", 1.0), ("equality, growing", 0.2)):
        rows += [row("state", OURS, seconds, case=case), row("state", "spark rocksdb v2", 2.0, case=case)]
    random, _, growing, _ = goals(page(tmp_path, rows))
    assert random.endswith("| 2.00 | **no** |")
    assert growing.endswith("| 10.00 | yes |")


def test_flink_is_shown_and_not_judged(tmp_path):
    rows = [row("large", OURS, 0.1), row("large", "flink interval join", 9.0, trigger_seconds="")]
    lines = page(tmp_path, rows)
    assert goals(lines) == []
    assert any("| flink interval join | 1 | 9.000 |  |  |  | 1,000 | 5 |" in line for line in lines)


def test_a_contender_that_is_missing_or_fails_says_so_and_is_not_judged(tmp_path):
    lost = {"add_batch_seconds": "", "trigger_seconds": ""}
    rows = [
        row("chain", "spark rocksdb v2", 1.0),
        row("chain", OURS_MANY, 0.0, failure="skipped: not there", **lost),
        row("band", OURS, 0.0, failure="out of memory", **lost),
    ]
    lines = page(tmp_path, rows)
    assert goals(lines) == []
    assert any(f"| {OURS_MANY} | 1 | skipped: not there |" in line for line in lines)
    assert any(f"| {OURS} | 1 | failed: out of memory |" in line for line in lines)
