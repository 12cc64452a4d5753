"""`python -m benchmarks.engine`: build what is missing, measure, write the table."""

import argparse
import sys
from pathlib import Path

from benchmarks.engine import report
from benchmarks.engine.cases import FULL_EFFORT, GOALS, OURS, QUICK_EFFORT, STORES, full_cases, quick_cases
from benchmarks.engine.results import TABLE
from benchmarks.engine.runner import Plan, run_case
from benchmarks.harness.results import Result, describe_run
from benchmarks.harness.running import DOCS, add_contenders, alone

_REPOSITORY = Path(__file__).resolve().parents[2]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a smoke test on little data; the docs are not written"
    )
    parser.add_argument(
        "--only", choices=GOALS, action="append", help="measure only this goal (may be repeated)"
    )
    add_contenders(parser, (*OURS, *STORES, "polars"))
    parser.add_argument(
        "--data", type=Path, default=_REPOSITORY / "build" / "bench", help="where data sets are kept"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=0, help="default: 3, or 1 with --quick")
    return parser.parse_args()


def _show(result: Result) -> None:
    name = " ".join(part for part in (str(result["contender"]), str(result["variant"])) if part)
    where = f"{result['goal']:6} {result['stream']:6} {result['batch_rows']:>7,} {name:40}"
    if result["failure"]:
        print(f"{where} failed: {result['failure']}", flush=True)
        return
    print(
        f"{where} {result['rows_per_second']:>12,.0f} rows/s {result['batch_seconds_median']:8.4f} s/batch"
        f" {result['batches']:>4} batches  peak {int(result['peak_bytes']) >> 20:>5} MB  cap {result['cap']}",
        flush=True,
    )


def main() -> None:
    """Run the chosen cases and write the results."""
    arguments = _arguments()
    with alone(arguments.data.resolve()):
        _run(arguments)


def _run(arguments: argparse.Namespace) -> None:
    plan = Plan(
        data=arguments.data.resolve(),
        seed=arguments.seed,
        effort=QUICK_EFFORT if arguments.quick else FULL_EFFORT,
        repetitions=arguments.repetitions or (1 if arguments.quick else 3),
        only_contenders=arguments.contenders,
        all_variants=not arguments.quick,
    )
    goals = set(arguments.only or GOALS)
    origin, rows = describe_run(), []
    for case in quick_cases() if arguments.quick else full_cases():
        for result in run_case(plan, case) if case.goal in goals else ():
            rows.append({**origin, **result})
            _show(result)
    folder = DOCS
    if arguments.quick or arguments.contenders:
        folder = plan.data / ("quick" if arguments.quick else "partial")
    TABLE.replace(folder / "engine.csv", goals, rows)
    report.write(folder / "engine.csv", folder / "engine.md")
    print(f"results: {folder / 'engine.md'}", file=sys.stderr)


if __name__ == "__main__":
    main()
