"""`python -m benchmarks.engine`: build what is missing, measure, write the table."""

import argparse
import contextlib
import fcntl
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.engine import report, results
from benchmarks.engine.cases import FULL_EFFORT, GOALS, OURS, QUICK_EFFORT, STORES, full_cases, quick_cases
from benchmarks.engine.runner import Plan, Result, run_case

_REPOSITORY = Path(__file__).resolve().parents[2]
_CONTENDERS = (*OURS, *STORES, "polars")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a smoke test on little data; the docs are not written"
    )
    parser.add_argument(
        "--only", choices=GOALS, action="append", help="measure this goal alone (may be repeated)"
    )
    parser.add_argument(
        "--contenders", default="", help=f"some of {','.join(_CONTENDERS)}; the docs are not written"
    )
    parser.add_argument(
        "--data", type=Path, default=_REPOSITORY / "build" / "bench", help="where data sets are kept"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=0, help="default: 3, or 1 with --quick")
    arguments = parser.parse_args()
    arguments.contenders = tuple(name for name in arguments.contenders.split(",") if name)
    unknown = set(arguments.contenders) - set(_CONTENDERS)
    if unknown:
        parser.error(f"unknown contenders {sorted(unknown)}, there are {', '.join(_CONTENDERS)}")
    return arguments


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


@contextlib.contextmanager
def _alone(data: Path) -> Iterator[None]:
    """Two runs at once would share disk, cores and page cache, and neither would measure anything."""
    data.mkdir(parents=True, exist_ok=True)
    with (data / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(
                f"another run uses {data}; wait for its end or give --data another folder"
            ) from None
        yield


def main() -> None:
    """Run the chosen cases and write the results."""
    # an orderly exit removes the control group and ends the process in it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    arguments = _arguments()
    with _alone(arguments.data.resolve()):
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
    origin, rows = results.describe_run(), []
    for case in quick_cases() if arguments.quick else full_cases():
        for result in run_case(plan, case) if case.goal in goals else ():
            rows.append({**origin, **result})
            _show(result)
    folder = _REPOSITORY / "docs" / "benchmarks"
    if arguments.quick or arguments.contenders:
        folder = plan.data / ("quick" if arguments.quick else "partial")
    results.replace_goals(folder / "engine.csv", goals, rows)
    report.write(folder / "engine.csv", folder / "engine.md")
    print(f"results: {folder / 'engine.md'}", file=sys.stderr)


if __name__ == "__main__":
    main()
