"""Whatever is killed or repeated, the sink holds each row once."""

import random

import pytest

from tests.spark.join.scripts import BEGIN, FAIL, IDLE, KILL, RESTART, Case, Player, random_script

SECOND = 1_000_000
STEPS = [
    ([(1, BEGIN, 1), (2, BEGIN, 2)], [(1, BEGIN + SECOND, 3)]),
    ([(3, BEGIN + 4 * SECOND, 4)], [(2, BEGIN + 3 * SECOND, 5)]),
    ([(2, BEGIN + 5 * SECOND, 6), (4, BEGIN + 9 * SECOND, 7)], [(2, BEGIN + 6 * SECOND, 8)]),
    ([(9, BEGIN + 20 * SECOND, 9)], [(4, BEGIN + 9 * SECOND, 10), (9, BEGIN + 20 * SECOND, 11)]),
    IDLE,
]


def played(spark, directory, case, script):
    return Player(spark, directory, case, case.of_adjoin).play(script)


def disturbed(script, what):
    """The script, with this between all steps."""
    return [each for step in script for each in (what, step)]


@pytest.mark.parametrize("what", [KILL, FAIL, RESTART])
@pytest.mark.parametrize("how", ["inner", "full"])
def test_rows_are_there_once_whatever_happens_between_micro_batches(stateful, tmp_path, how, what):
    case = Case(how, 0, 10 * SECOND, (0, 0))
    expected = played(stateful, tmp_path / "calm", case, STEPS)
    assert played(stateful, tmp_path / "disturbed", case, disturbed(STEPS, what))[-1] == expected[-1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_random_scripts_with_kills(stateful, tmp_path, seed):
    """Spark's own join is disturbed as well: a query that starts again has another watermark for a while."""
    chance = random.Random(seed)
    case = Case(chance.choice(["inner", "left", "right"]), 0, 3 * SECOND, (0, 0))
    events: list[tuple[str, ...]] = [(), (KILL,), (FAIL,), (FAIL, KILL)]
    script = [step for step in random_script(chance) if step != RESTART]
    mixed = [each for step in script for each in (*chance.choice(events), step)]
    ours = Player(stateful, tmp_path / "ours", case, case.of_adjoin).play(mixed)
    theirs = Player(stateful, tmp_path / "theirs", case, case.of_spark).play(mixed)
    assert ours == theirs
