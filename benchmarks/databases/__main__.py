"""`python -m benchmarks.databases`: measure index joins of PostgreSQL and MariaDB, where available."""

import argparse
import statistics
import tempfile
from pathlib import Path

from adjoin.memory.budget import parse_bytes
from benchmarks.databases import workload
from benchmarks.databases.catalogue import SYSTEMS
from benchmarks.databases.database import Database
from benchmarks.databases.programs import UnavailableError
from benchmarks.databases.server import DatabaseError
from benchmarks.harness.running import alone

_REPOSITORY = Path(__file__).resolve().parents[2]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.databases", description=__doc__)
    parser.add_argument("--rows", type=int, default=800_000, help="rows of the master, 320 per key")
    parser.add_argument("--stream", type=int, default=10_000, help="rows of the stream")
    parser.add_argument("--buffer", type=parse_bytes, default="1GB", help="buffer pool of each server")
    parser.add_argument("--repetitions", type=int, default=3, help="number of joins; the median counts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--data", type=Path, default=Path("/var/tmp"), help="where databases are kept while they run"
    )
    return parser.parse_args()


def _measure(system: type[Database], arguments: argparse.Namespace) -> str:
    """One line of the table."""
    keys = workload.stream_keys(arguments.stream, arguments.rows, arguments.seed)
    with tempfile.TemporaryDirectory(prefix="adjoin-", dir=arguments.data) as folder:
        Path(folder).chmod(0o755)
        with system().start(Path(folder), arguments.buffer) as database:
            database.load(workload.master_batches(arguments.rows, arguments.seed))
            joins = [database.join(keys) for _ in range(arguments.repetitions)]
    seconds = statistics.median(join.seconds for join in joins)
    stream_rate, joined_rate = len(keys) / seconds, joins[0].rows / seconds
    return (
        f"{system.name:12} {database.version:12} {stream_rate:>14,.0f} {joined_rate:>14,.0f} {seconds:>8.3f}"
    )


def main() -> None:
    """Measure every available system, and say why others are skipped."""
    arguments = _arguments()
    with alone(_REPOSITORY / "build" / "bench"):
        print(f"{'system':12} {'version':12} {'stream rows/s':>14} {'joined rows/s':>14} {'seconds':>8}")
        for system in SYSTEMS:
            try:
                print(_measure(system, arguments), flush=True)
            except (UnavailableError, DatabaseError) as reason:
                print(f"{system.name:12} skipped: {reason}", flush=True)


if __name__ == "__main__":
    main()
