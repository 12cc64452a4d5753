"""How a check is declared: one property, a grid of settings, and what an operator must be able to do."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from tests.conformance.subjects import Subject

HOWS = ("inner", "left", "semi", "anti")

Check = Callable[..., None]


@dataclass(frozen=True)
class Case:
    """A check with one setting of its grid."""

    check: Check = field(repr=False)
    settings: dict[str, Any]
    needs: frozenset[str]

    @property
    def name(self) -> str:
        return self.check.__name__.removeprefix("check_")

    @property
    def id(self) -> str:
        return "-".join([self.name, *(str(value).replace(" ", "_") for value in self.settings.values())])

    def fits(self, subject: Subject) -> bool:
        return self.needs <= subject.able

    def run(self, subject: Subject) -> None:
        self.check(subject, **self.settings)


CASES: list[Case] = []


def check(needs: Iterable[str] = (), **grid: Iterable[Any]) -> Callable[[Check], Check]:
    """Register a check for every combination of the grid's values."""

    def register(function: Check) -> Check:
        combinations = (dict(zip(grid, values, strict=True)) for values in product(*grid.values()))
        CASES.extend(Case(function, settings, frozenset(needs)) for settings in combinations)
        return function

    return register


def cases_of(subject: Subject) -> Iterator[Case]:
    return (case for case in CASES if case.fits(subject))
