"""The memory of a process and of all that it has started, while it runs."""

import contextlib
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

_PROC = Path("/proc")
_SECONDS = 1.0


@dataclass(frozen=True)
class Resident:
    """Bytes in memory; pages that several processes share count once."""

    java: int = 0
    other: int = 0

    @property
    def all(self) -> int:
        """Of all processes together."""
        return self.java + self.other


def resident(root: int) -> Resident:
    """The memory of a process and its descendants, at this moment."""
    java = other = 0
    for process in _with_descendants(root):
        # it may have ended since
        with contextlib.suppress(OSError, ValueError):
            folder = _PROC / str(process)
            used = _proportional_bytes((folder / "smaps_rollup").read_text())
            if (folder / "comm").read_text().strip() == "java":
                java += used
            else:
                other += used
    return Resident(java, other)


class Watch:
    """The memory at any time, looked at every second.

    Use it as a context manager around the life of the process.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.seen: list[Resident] = []

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_SECONDS):
            self.seen.append(resident(self._root))


def _with_descendants(root: int) -> Iterator[int]:
    children: dict[int, list[int]] = defaultdict(list)
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                # the name in parentheses may contain anything
                after_name = (folder / "stat").read_text().rpartition(")")[2]
                children[int(after_name.split()[1])].append(int(folder.name))
    waiting = [root]
    while waiting:
        process = waiting.pop()
        yield process
        waiting += children[process]


def _proportional_bytes(rollup: str) -> int:
    line = next(line for line in rollup.splitlines() if line.startswith("Pss:"))
    return int(line.split()[1]) << 10
