"""Every operator passes every check of its family that fits it."""

import pytest

from tests.conformance.every import FAMILIES
from tests.conformance.registry import Case, dealt
from tests.conformance.subjects import Subject


def _pairs() -> list[object]:
    """All operators with the cases that they run, those marked slow that are left to `make test-slow`."""
    pairs: list[object] = []
    for family, subjects in FAMILIES:
        for number, subject in enumerate(subjects):
            for case, is_quick in dealt(family.cases_for(subject), subject, number):
                marks = [] if is_quick else [pytest.mark.slow]
                pairs.append(pytest.param(subject, case, id=f"{subject.name}-{case.id}", marks=marks))
    return pairs


@pytest.mark.parametrize(("subject", "case"), _pairs())
def test_operator_passes_check(subject: Subject, case: Case) -> None:
    case.run(subject)
