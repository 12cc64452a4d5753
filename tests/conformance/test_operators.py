"""Every operator passes every check that fits it."""

import pytest

from tests.conformance.checks.every import Case, cases_of
from tests.conformance.subjects import OPERATORS, Subject

PAIRS = [pytest.param(s, case, id=f"{s.name}-{case.id}") for s in OPERATORS for case in cases_of(s)]


@pytest.mark.parametrize(("subject", "case"), PAIRS)
def test_operator_passes(subject: Subject, case: Case) -> None:
    case.run(subject)
