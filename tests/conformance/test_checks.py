"""The checks themselves: each of them fails on the operators that it should catch."""

import pytest

from adjoin import BudgetError
from tests.conformance.every import SEMI_STREAM
from tests.conformance.registry import Family
from tests.conformance.semistream.broken import BROKEN
from tests.conformance.semistream.reference import Reference
from tests.conformance.semistream.subjects import SemiStreamSubject
from tests.conformance.subjects import Subject

MUTANTS: list[tuple[Family, Subject, str]] = [
    (SEMI_STREAM, SemiStreamSubject(kind.__name__, kind, frozenset({"range"})), name)
    for kind, names in BROKEN.items()
    for name in sorted(names)
]


@pytest.mark.parametrize(
    ("family", "subject", "name"), MUTANTS, ids=[f"{subject.name}-{name}" for _, subject, name in MUTANTS]
)
def test_check_catches_mistake(family: Family, subject: Subject, name: str) -> None:
    cases = [case for case in family.cases_for(subject) if case.name == name]
    assert cases, f"there is no check {name}"
    for case in cases:
        try:
            case.run(subject)
        except (AssertionError, BudgetError, KeyError, pytest.fail.Exception):
            return
    pytest.fail(f"check_{name} passes {subject.name}")


def test_every_check_catches_some_mistake() -> None:
    subject = SemiStreamSubject("Reference", Reference, frozenset({"range"}))
    names = {case.name for case in SEMI_STREAM.cases_for(subject)}
    assert names == set().union(*BROKEN.values())
