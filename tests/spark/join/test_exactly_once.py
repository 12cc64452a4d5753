"""Whatever is killed or repeated, the sink holds each row once."""

import itertools
import random

import pytest
from pyspark.errors import StreamingQueryException

import adjoin
from tests.spark.join.scripts import BEGIN, FAIL, IDLE, KILL, RESTART, Case, Player, Step, random_script

SECOND = 1_000_000
STEPS: list[Step] = [
    ([(1, BEGIN, 1), (2, BEGIN, 2)], [(1, BEGIN + SECOND, 3)]),
    ([(3, BEGIN + 4 * SECOND, 4)], [(2, BEGIN + 3 * SECOND, 5)]),
    ([(2, BEGIN + 5 * SECOND, 6), (4, BEGIN + 9 * SECOND, 7)], [(2, BEGIN + 6 * SECOND, 8)]),
    ([(9, BEGIN + 20 * SECOND, 9)], [(4, BEGIN + 9 * SECOND, 10), (9, BEGIN + 20 * SECOND, 11)]),
    IDLE,
]


def played(spark, directory, case, script):
    return Player(spark, directory, case, case.of_adjoin).play(script)


def disturbed(script: list[Step], what: str) -> list[Step]:
    """The script, with this between all steps."""
    return [each for step in script for each in (what, step)]


@pytest.mark.parametrize(
    "what", [KILL, *(pytest.param(what, marks=pytest.mark.slow) for what in (FAIL, RESTART))]
)
@pytest.mark.parametrize("how", [pytest.param("inner", marks=pytest.mark.slow), "full"])
def test_rows_are_there_once_whatever_happens_between_micro_batches(stateful, tmp_path, how, what):
    case = Case(how, 0, 10 * SECOND, (0, 0))
    expected = played(stateful, tmp_path / "calm", case, STEPS)
    assert played(stateful, tmp_path / "disturbed", case, disturbed(STEPS, what))[-1] == expected[-1]


@pytest.mark.slow
def test_a_query_continues_in_another_time_zone(stateful, tmp_path):
    case = Case("full", 0, 10 * SECOND, (0, 0))
    zones = itertools.cycle(["UTC", "Asia/Tokyo"])

    def joined(left, right, spill):
        stateful.conf.set("spark.sql.session.timeZone", next(zones))
        return case.of_adjoin(left, right, spill)

    expected = played(stateful, tmp_path / "calm", case, STEPS)[-1]
    found = Player(stateful, tmp_path / "moved", case, joined).play(disturbed(STEPS, RESTART))[-1]
    assert found == expected


def twice(case):
    """The same join in two branches of a query."""

    def united(left, right, spill):
        joined = case.of_adjoin(left, right, spill)
        return joined.union(joined)

    return united


@pytest.mark.slow
@pytest.mark.parametrize("what", [IDLE, KILL, FAIL])
def test_a_join_that_is_used_twice(stateful, tmp_path, what):
    """Both uses have their own state in Spark's state store, and the same operators."""
    case = Case("inner", None, None, (None, None))
    expected = played(stateful, tmp_path / "once", case, STEPS)[-1]
    found = Player(stateful, tmp_path / "twice", case, twice(case)).play(disturbed(STEPS, what))[-1]
    assert expected
    assert found == expected + expected


@pytest.mark.slow
def test_a_join_with_watermarks_that_is_used_twice(stateful, tmp_path):
    """Spark reads the input of both once, and loses the watermark of one: its rows would never leave."""
    case = Case("left", 0, 10 * SECOND, (0, 0))
    with pytest.raises(StreamingQueryException) as failed:
        Player(stateful, tmp_path, case, twice(case)).play(STEPS)
    found = adjoin.reason(failed.value)
    assert isinstance(found, adjoin.OptionError)
    assert "used twice" in str(found)


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
