"""How a benchmark runs: alone, with an orderly end, its results in the docs or next to its data."""

import argparse
import contextlib
import fcntl
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs" / "benchmarks"


@contextlib.contextmanager
def alone(data: Path) -> Iterator[None]:
    """Hold the lock on the data: two runs at once would share disk, cores and page cache and measure nothing.

    A run that is told to end does so in an orderly way, along with everything it started.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    data.mkdir(parents=True, exist_ok=True)
    with (data / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(
                f"another run is using {data}; wait for it to end, or use another folder with --data"
            ) from None
        yield


def add_contenders(parser: argparse.ArgumentParser, known: Iterable[str]) -> None:
    """The option `--contenders`, a tuple of names."""
    names = tuple(known)

    def chosen(given: str) -> tuple[str, ...]:
        some = tuple(name for name in given.split(",") if name)
        if unknown := set(some) - set(names):
            raise argparse.ArgumentTypeError(f"unknown {sorted(unknown)}; choose from {', '.join(names)}")
        return some

    parser.add_argument(
        "--contenders",
        type=chosen,
        default=(),
        help=f"only some of {','.join(names)}; the docs are not written",
    )
