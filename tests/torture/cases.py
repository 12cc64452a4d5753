"""Kinds of cases, each reproducible from a seed and a number."""

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from adjoin.errors import AdjoinError


class Draw(random.Random):
    """The random numbers of one case.

    Attributes:
        seed_: The seed of the campaign.
        number: The number of the case.
    """

    def __init__(self, what: str = "", seed: int = 0, number: int = 0) -> None:
        super().__init__(f"{what} {seed} {number}")
        self.seed_ = seed
        self.number = number


Case = Callable[[Draw], "Counter[str]"]
"""Runs one case and counts what it did; raises an AssertionError if a promise is broken."""


@dataclass(frozen=True)
class Kind:
    """A kind of cases.

    Attributes:
        name: The group and the kind, such as "kills/process".
        share: The share of the total time.
        opened: Prepares what all cases share, in an empty directory.
        environment: Environment variables for the process that runs the cases.
        seconds: The time after which a single case counts as hung.
    """

    name: str
    share: float
    opened: Callable[[Path], AbstractContextManager[Case]]
    environment: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 120.0

    @property
    def part(self) -> str:
        return self.name.partition("/")[0]


def simple(case: Callable[[Path, Draw], "Counter[str]"]) -> Callable[[Path], AbstractContextManager[Case]]:
    """For cases that share only a directory, which is empty before each case."""

    @contextmanager
    def opened(work: Path) -> Iterator[Case]:
        def run(draw: Draw) -> Counter[str]:
            remove(work / "case")
            (work / "case").mkdir(parents=True)
            return case(work / "case", draw)

        yield run

    return opened


def remove(path: Path) -> None:
    """Remove a directory and its contents."""
    shutil.rmtree(path, ignore_errors=True)


def refusal(error: BaseException, *names: object) -> str:
    """The message of an error that adjoin raises on purpose; it must mention one of the names."""
    if not isinstance(error, AdjoinError):
        raise AssertionError(f"a raw {type(error).__name__}: {error}") from error
    text = str(error)
    if names and not any(str(name) in text for name in names):
        raise AssertionError(
            f"{type(error).__name__} mentions none of {list(map(str, names))}: {text}"
        ) from error
    return text
