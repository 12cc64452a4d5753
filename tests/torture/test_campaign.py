"""A slice of the campaign with fixed seeds; `make torture` runs more of it."""

import pytest

from tests.torture.campaign import Runner
from tests.torture.kinds import KINDS

CASES = {
    "kills/process": 3,
    "damage/files": 40,
    "damage/page memory": 15,
    "damage/snapshots": 20,
    "disks": 60,
    "fuzz/parsers": 4,
    "fuzz/pages": 3,
    "fuzz/operators": 6,
    "fuzz/stream joins": 15,
    "fuzz/changes": 8,
    "fuzz/options": 4,
    "races": 1,
}
"""About a minute; Spark and checked kernels take longer to start than a test may."""


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_nothing_is_broken(name: str) -> None:
    outcome = Runner(KINDS[name], seed=15, cases=CASES[name]).run(600)
    assert not outcome.violations, "\n\n".join(f"{found.text}\n{found.how}" for found in outcome.violations)
    assert outcome.cases == CASES[name]
    assert sum(outcome.counts.values())
