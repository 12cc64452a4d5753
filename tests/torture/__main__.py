"""Break masters in every conceivable way and check that the promises hold; `make torture` runs this."""

import argparse
import sys
from collections.abc import Sequence

from tests.torture import report
from tests.torture.campaign import Outcome, Runner, run_all
from tests.torture.cases import Kind
from tests.torture.kinds import KINDS


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="total time for all kinds (default: 5)")
    parser.add_argument("--seed", type=int, default=1, help="another seed gives other cases (default: 1)")
    parser.add_argument(
        "--only", action="append", metavar="KIND", help=f"run only this kind or group of {', '.join(KINDS)}"
    )
    parser.add_argument("--case", type=int, help="run only this case; give its kind and seed as well")
    parser.add_argument("--jobs", type=int, default=2, help="kinds to run at the same time (default: 2)")
    parser.add_argument(
        "--write-docs", action="store_true", help="add the counts to docs/reliability.csv and .md"
    )
    return parser.parse_args()


def chosen(only: Sequence[str] | None) -> list[Kind]:
    names = [
        name for name in KINDS if not only or any(name == one or name.startswith(f"{one}/") for one in only)
    ]
    if not names:
        sys.exit(f"there is no kind {only}; choose from {', '.join(KINDS)}")
    return [KINDS[name] for name in names]


def run(options: argparse.Namespace) -> list[Outcome]:
    kinds = chosen(options.only)
    if options.case is not None:
        return [Runner(kind, options.seed, options.case, 1).run(3600) for kind in kinds]
    return run_all(kinds, options.seed, options.minutes, options.jobs)


def main() -> int:
    options = arguments()
    outcomes = run(options)
    print(report.table(outcomes))
    violations = [violation for outcome in outcomes for violation in outcome.violations]
    for violation in violations:
        print(f"\n{violation.text.strip()}\n  {violation.how}")
    if options.write_docs:
        report.write(outcomes, options.seed, options.minutes)
    print(f"\n{len(violations)} violations, seed {options.seed}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
