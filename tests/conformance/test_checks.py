"""The checks themselves: each of them fails on the operators that it should catch."""

import pytest

from adjoin import BudgetError
from tests.conformance.every import SEMI_STREAM, STREAM_JOIN
from tests.conformance.registry import Family
from tests.conformance.semistream import broken as broken_semi_stream
from tests.conformance.semistream.reference import Reference
from tests.conformance.semistream.subjects import SemiStreamSubject
from tests.conformance.streamjoin import broken as broken_stream_join
from tests.conformance.streamjoin import subjects as stream_joins
from tests.conformance.streamjoin.reference import ManyReference
from tests.conformance.streamjoin.subjects import StreamJoinSubject
from tests.conformance.subjects import Subject

SEMI_STREAM_SUBJECT = SemiStreamSubject("Reference", Reference, frozenset({"range"}))
TWO_INPUTS, MANY_INPUTS = stream_joins.REFERENCES


def _mutants() -> list[tuple[Family, Subject, str]]:
    """Every broken operator with every check that must fail on it."""
    mutants: list[tuple[Family, Subject, str]] = []
    for kind, names in broken_semi_stream.BROKEN.items():
        subject = SemiStreamSubject(kind.__name__, kind, SEMI_STREAM_SUBJECT.able)
        mutants += [(SEMI_STREAM, subject, name) for name in sorted(names)]
    for core, names in broken_stream_join.BROKEN.items():
        able = (MANY_INPUTS if issubclass(core, ManyReference) else TWO_INPUTS).able
        join = StreamJoinSubject(core.__name__, core, able)
        mutants += [(STREAM_JOIN, join, name) for name in sorted(names)]
    return mutants


MUTANTS = _mutants()


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


def test_every_semi_stream_check_catches_some_mistake() -> None:
    names = {case.name for case in SEMI_STREAM.cases_for(SEMI_STREAM_SUBJECT)}
    assert names == set().union(*broken_semi_stream.BROKEN.values())


def test_every_stream_join_check_catches_some_mistake() -> None:
    names = {case.name for subject in (TWO_INPUTS, MANY_INPUTS) for case in STREAM_JOIN.cases_for(subject)}
    assert names == set().union(*broken_stream_join.BROKEN.values())
