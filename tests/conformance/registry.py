"""How checks are declared, and which operator runs which of them when."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from tests.conformance.subjects import Subject

Check = Callable[..., None]

TYPES_ONE_IN = 10


@dataclass(frozen=True)
class Case:
    """A check with one setting of its grid."""

    check: Check = field(repr=False)
    settings: dict[str, Any]
    needs: frozenset[str]
    is_of_types: bool

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


class Family:
    """The checks for operators of one contract.

    Attributes:
        cases: Every check with every setting, in the order of declaration.
    """

    def __init__(self) -> None:
        self.cases: list[Case] = []

    def check(
        self, needs: Iterable[str] = (), *, over_types: bool = False, **grid: Iterable[Any]
    ) -> Callable[[Check], Check]:
        """Register a check for every combination of the grid's values.

        Args:
            needs: What an operator must be able to do for the check to make sense.
            over_types: The check is part of the type matrix: its grid goes over key types.
            **grid: The values of each argument of the check.
        """

        def register(function: Check) -> Check:
            combinations = (dict(zip(grid, values, strict=True)) for values in product(*grid.values()))
            self.cases.extend(
                Case(function, settings, frozenset(needs), over_types) for settings in combinations
            )
            return function

        return register

    def cases_for(self, subject: Subject) -> list[Case]:
        return [case for case in self.cases if case.fits(subject)]


SEMI_STREAM = Family()
STREAM_JOIN = Family()


def dealt(cases: Sequence[Case], subject: Subject, number: int) -> Iterator[tuple[Case, bool]]:
    """The cases that a subject runs, each with whether `make test` runs it; `make test-slow` runs the others.

    All operators encode and compare keys with the same code. So a few, those with `all_types`, run the whole
    type matrix, and every other one runs a tenth of it. The tenths are spread evenly over types and differ
    from operator to operator; they are small enough for `make test`.

    Of everything else, `make test` runs one case in `quick_one_in`, different ones for each operator; for one
    that `leads` its family, at least one setting of every check.

    Args:
        cases: Those that fit the subject.
        subject: The operator.
        number: Its place among all operators of its family.
    """
    sampled = [case for case in cases if case.is_of_types and not subject.all_types]
    yield from ((case, True) for case in sampled[-number % TYPES_ONE_IN :: TYPES_ONE_IN])
    whole = [case for case in cases if not case.is_of_types or subject.all_types]
    settings, place_in_check = Counter(case.name for case in whole), Counter[str]()
    for place, case in enumerate(whole):
        if subject.leads:
            one_in = min(subject.quick_one_in, settings[case.name])
            yield case, (place_in_check[case.name] + number) % one_in == 0
            place_in_check[case.name] += 1
        else:
            yield case, (place + number) % subject.quick_one_in == 0
