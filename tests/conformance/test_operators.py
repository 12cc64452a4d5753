"""Every operator passes every check that fits it."""

import pytest

from tests.conformance.checks.every import Case, cases_of
from tests.conformance.subjects import OPERATORS, Subject


def _pairs() -> list[object]:
    """All operators and checks; operators that share code with another leave most to `make test-slow`."""
    pairs: list[object] = []
    for number, subject in enumerate(OPERATORS):
        for place, case in enumerate(cases_of(subject)):
            is_slow = (place + number) % subject.one_of != 0
            marks = [pytest.mark.slow] if is_slow else []
            pairs.append(pytest.param(subject, case, id=f"{subject.name}-{case.id}", marks=marks))
    return pairs


@pytest.mark.parametrize(("subject", "case"), _pairs())
def test_operator_passes(subject: Subject, case: Case) -> None:
    case.run(subject)
