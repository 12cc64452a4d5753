"""`python -m benchmarks.streamjoin`: join streams and write the table."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from benchmarks.harness.results import ORIGIN, Result, Table, describe_run
from benchmarks.harness.running import DOCS, alone
from benchmarks.streamjoin import chains, report
from benchmarks.streamjoin.chains import Chain
from benchmarks.streamjoin.contenders import CHAIN_CONTENDERS, CONTENDERS
from benchmarks.streamjoin.inputs import KINDS, Inputs

_REPOSITORY = Path(__file__).resolve().parents[2]
_MEMORY_SHARE = 0.05
_ALL = {**KINDS, **chains.KINDS}
_MORE_MEMORY = (1, 2, 4, 8, 16, 32, 64)
"""Multiples of DINER's memory that DuckDB gets, in turn, until it succeeds."""
TABLE = Table(
    columns=(
        *ORIGIN,
        "kind",
        "input_rows",
        "memory_bytes",
        "contender",
        "repetition",
        "seconds",
        "arriving_seconds",
        "rows",
        "early_rows",
        "checksum",
        "peak_bytes",
        "metrics",
    ),
    part="kind",
)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streamjoin", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="use little data; the docs are not written")
    parser.add_argument("--only", choices=_ALL, action="append", help="only these keys (may be repeated)")
    parser.add_argument(
        "--data", type=Path, default=_REPOSITORY / "build" / "bench", help="where inputs are kept"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=3)
    return parser.parse_args()


def main() -> None:
    """Run all contenders and write the results."""
    arguments = _arguments()
    folder = arguments.data.resolve()
    with alone(folder):
        kinds, origin, found = arguments.only or list(_ALL), describe_run(), []
        for kind in kinds:
            inputs = _inputs(kind, folder, arguments)
            for repetition in range(1, 1 + (1 if arguments.quick else arguments.repetitions)):
                more = {**origin, "seed": arguments.seed, "repetition": repetition}
                found += [{**more, **result} for result in _measure(inputs)]
    target = folder / "quick" if arguments.quick else DOCS
    TABLE.replace(target / "streamjoin.csv", set(kinds), found)
    report.write(target / "streamjoin.csv", target / "streamjoin.md")
    print(f"results: {target / 'streamjoin.md'}", file=sys.stderr)


def _inputs(kind: str, folder: Path, arguments: argparse.Namespace) -> Inputs | Chain:
    if kind in KINDS:
        return Inputs(kind, 100_000 if arguments.quick else 5_000_000, arguments.seed, folder)
    return Chain(kind, 100_000 if arguments.quick else 1_000_000, arguments.seed, folder)


def _measure(inputs: Inputs | Chain) -> list[Result]:
    contenders = CONTENDERS if isinstance(inputs, Inputs) else CHAIN_CONTENDERS
    results = [_run(inputs, name) for name in contenders]
    if len({(result["rows"], result["checksum"]) for result in results}) > 1:
        raise SystemExit(f"the contenders disagree on {inputs.kind}: {results}")
    return results


def _run(inputs: Inputs | Chain, name: str) -> Result:
    for times in _MORE_MEMORY:
        memory_bytes = int(_MEMORY_SHARE * inputs.bytes * times)
        command = [sys.executable, "-m", "benchmarks.streamjoin.contenders", name]
        child = subprocess.run(
            [*command, *map(str, inputs.paths()), str(memory_bytes)],
            check=False,
            capture_output=True,
            text=True,
        )
        if child.returncode == 0:
            outcome: Result = json.loads(child.stdout.splitlines()[-1])
            print(
                f"{inputs.kind:8} {name:18} {outcome['seconds']:8.2f} s  {memory_bytes >> 20} MB", flush=True
            )
            return {
                "kind": inputs.kind,
                "input_rows": inputs.rows,
                "memory_bytes": memory_bytes,
                "contender": name,
                **outcome,
            }
        if name != "DuckDB" or "Out of Memory" not in child.stderr:
            break
    raise SystemExit(f"{name} failed:\n{child.stderr}")


if __name__ == "__main__":
    main()
