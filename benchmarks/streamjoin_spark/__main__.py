"""`python -m benchmarks.streamjoin_spark`: create missing data, measure, write the table."""

import argparse
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness.results import Result, describe_run
from benchmarks.harness.running import DOCS, add_contenders, alone
from benchmarks.spark.datasets import SCRATCH_PREFIX, default_folder
from benchmarks.streamjoin_spark import report
from benchmarks.streamjoin_spark.cases import ALL, FLINK, SETTINGS, full_cases, smoke_cases
from benchmarks.streamjoin_spark.flink import install
from benchmarks.streamjoin_spark.results import TABLE
from benchmarks.streamjoin_spark.runner import Plan, Preparation, run

_NAME = "streamjoin_spark"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{_NAME}", description=__doc__)
    parser.add_argument(
        "--smoke", action="store_true", help="every contender on tiny data sets; the docs are not written"
    )
    parser.add_argument(
        "--only", choices=SETTINGS, action="append", help="measure only this setting (may be repeated)"
    )
    parser.add_argument(
        "--skip", choices=SETTINGS, action="append", help="skip this setting (may be repeated)"
    )
    add_contenders(parser, ALL)
    parser.add_argument(
        "--data",
        type=Path,
        default=default_folder(),
        help="where data sets are kept, 5 GB; default: $ADJOIN_BENCH_DATA, "
        "or a folder in the user's cache (%(default)s)",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=0, help="default: 3, or 1 with --smoke")
    parser.add_argument(
        "--partitions", type=int, default=2, help="of Spark's shuffles (default: %(default)s)"
    )
    return parser.parse_args()


def _show(result: Result) -> None:
    where = f"{result['setting']:7} {result['case']:18} {result['contender']:20}"
    if result["failure"]:
        print(f"{where} {result['failure']}", flush=True)
        return
    batch = (
        f"addBatch {result['add_batch_seconds']:7.3f} s  trigger {result['trigger_seconds']:7.3f} s"
        if "trigger_seconds" in result
        else f"all rows {result['whole_seconds']:7.3f} s"
    )
    print(
        f"{where} {batch}  {result['rows_per_second']:>9,.0f} rows/s  peak {result['peak_bytes'] >> 20:,} MB",
        flush=True,
    )


def _measure(plan: Plan, settings: set[str], smoke: bool, repeat: int) -> Iterator[list[Result]]:
    """The rows of each setting as it completes; all at once in the smoke test."""
    origin = describe_run()
    cases = [
        Preparation(plan, case)
        for case in (smoke_cases() if smoke else full_cases())
        if case.setting in settings
    ]
    groups = [[each for each in cases if each.case.setting == name] for name in SETTINGS]
    for group in [cases] if smoke else groups:
        rows = []
        # contenders take turns, so that a slow minute of the machine does not hit one of them alone
        for repetition in range(1, repeat + 1):
            for result in run(group, together=smoke):
                rows.append({**origin, "repetition": repetition, **result})
                _show(result)
        if rows:
            yield rows


def main() -> None:
    """Run the chosen settings and write the results."""
    arguments = _arguments()
    settings = set(arguments.only or SETTINGS) - set(arguments.skip or ())
    data = arguments.data.resolve()
    plan = Plan(data, arguments.seed, arguments.partitions, arguments.contenders)
    folder = DOCS
    if arguments.smoke or arguments.contenders:
        folder = data / ("smoke" if arguments.smoke else "partial")
    if not arguments.smoke and (not arguments.contenders or set(FLINK) & set(arguments.contenders)):
        print(install.ensure(), flush=True)
    repeat = arguments.repeat or (1 if arguments.smoke else 3)
    with alone(data):
        for left_by_a_killed_run in data.glob(f"{SCRATCH_PREFIX}*"):
            shutil.rmtree(left_by_a_killed_run)
        for rows in _measure(plan, settings, arguments.smoke, repeat):
            TABLE.replace(folder / f"{_NAME}.csv", {str(row["setting"]) for row in rows}, rows)
            report.write(folder / f"{_NAME}.csv", folder / f"{_NAME}.md")
    print(f"results: {folder / _NAME}.md", file=sys.stderr)


if __name__ == "__main__":
    main()
