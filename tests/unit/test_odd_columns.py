"""Columns of any type, nested or encoded, pass through all operators: in memory, on disk, in snapshots."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.encodings import KNOWN
from tests.odd_columns import OPERATORS

ROOT = Path(__file__).parents[2]


def outcomes(first: int, last: int, step: int) -> dict[str, int]:
    """The outcomes of these cases, run in a process of their own, because Arrow aborts when it is misused."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.odd_columns", str(first), str(last), str(step)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert ran.returncode == 0, ran.stderr[-2_000:]
    counted: dict[str, int] = ast.literal_eval(ran.stdout)
    return counted


@pytest.mark.slow
def test_types_that_once_aborted_the_process():
    """Each passes through one operator."""
    step = len(OPERATORS) + 1
    counted = outcomes(0, len(KNOWN) * len(OPERATORS), step)
    assert sum(counted.values()) == -(-len(KNOWN) * len(OPERATORS) // step)
    assert not [outcome for outcome in counted if outcome.startswith("refused")], counted


@pytest.mark.slow
@pytest.mark.parametrize("part", range(16))
def test_random_types_pass_through_all_operators(part):
    cases = 80
    counted = outcomes(part * cases, (part + 1) * cases, 1)
    assert not [outcome for outcome in counted if outcome.startswith("refused")], counted
