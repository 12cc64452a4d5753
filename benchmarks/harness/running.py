"""How a benchmark runs: alone, to an orderly end, its results into the docs or beside its data."""

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
    """Two runs at once would share disk, cores and page cache, and neither would measure anything.

    A run that is told to end does so in order, and what it started ends with it.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    data.mkdir(parents=True, exist_ok=True)
    with (data / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(
                f"another run uses {data}; wait for its end or give --data another folder"
            ) from None
        yield


def add_contenders(parser: argparse.ArgumentParser, known: Iterable[str]) -> None:
    """The option `--contenders`, a tuple of names."""
    names = tuple(known)

    def chosen(given: str) -> tuple[str, ...]:
        some = tuple(name for name in given.split(",") if name)
        if unknown := set(some) - set(names):
            raise argparse.ArgumentTypeError(f"unknown {sorted(unknown)}, there are {', '.join(names)}")
        return some

    parser.add_argument(
        "--contenders", type=chosen, default=(), help=f"some of {','.join(names)}; the docs are not written"
    )
