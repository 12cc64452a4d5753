"""The checks can fail: each of them finds the mistakes it is there for."""

import pytest

from adjoin import BudgetError
from tests.conformance.broken import BROKEN
from tests.conformance.checks.every import CASES
from tests.conformance.reference import Reference
from tests.conformance.subjects import Subject

REFERENCE_IS_ABLE = frozenset({"range"})
PAIRS = [(kind, name) for kind, names in BROKEN.items() for name in sorted(names)]


@pytest.mark.parametrize(("kind", "name"), PAIRS, ids=[f"{kind.__name__}-{name}" for kind, name in PAIRS])
def test_check_finds_the_mistake(kind: type[Reference], name: str) -> None:
    subject = Subject(kind.__name__, kind, REFERENCE_IS_ABLE)
    cases = [case for case in CASES if case.name == name and case.fits(subject)]
    assert cases, f"there is no check {name}"
    for case in cases:
        try:
            case.run(subject)
        except (AssertionError, BudgetError, KeyError, pytest.fail.Exception):
            return
    pytest.fail(f"check_{name} lets {kind.__name__} pass")


def test_every_check_has_a_mistake_to_find() -> None:
    subject = Subject("Reference", Reference, REFERENCE_IS_ABLE)
    names = {case.name for case in CASES if case.fits(subject)}
    assert names == set().union(*BROKEN.values())
