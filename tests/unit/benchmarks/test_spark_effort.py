from benchmarks.spark.cases import ALL, GOALS, SETTINGS, Effort, full_cases, smoke_cases

EFFORT = Effort(warm_batches=3, warm_seconds=10, batches=4, seconds=20, least_batches=2)


def test_a_fast_contender_is_measured_for_all_batches():
    assert EFFORT.measured([0.1] * 6) is None
    assert EFFORT.measured([0.1] * 7) == range(3, 7)
    assert EFFORT.measured([0.1] * 9) == range(3, 7)


def test_a_slow_contender_warms_up_and_stops_by_the_clock():
    assert EFFORT.measured([11.0, 11.0]) is None
    assert EFFORT.measured([11.0, 11.0, 11.0]) == range(1, 3)


def test_a_very_slow_contender_is_still_measured_more_than_once():
    assert EFFORT.measured([50.0, 50.0]) is None
    assert EFFORT.measured([50.0, 50.0, 50.0]) == range(1, 3)


def test_nothing_is_measured_before_the_first_batch():
    assert EFFORT.measured([]) is None
    assert Effort(0, 0, 1, 0, 1).measured([]) is None
    assert Effort(0, 0, 1, 0, 1).measured([5.0]) == range(1)


def test_every_goal_names_cases_and_contenders_that_are_measured():
    measured = {
        (case.setting, case.name, contender) for case in full_cases() for contender in case.contenders
    }
    for goal in GOALS:
        for side in filter(None, (goal.over, goal.under)):
            assert {(goal.setting, side.case, name) for name in side.contenders} <= measured
    assert {goal.setting for goal in GOALS} == set(SETTINGS)


def test_the_smoke_run_has_every_contender():
    assert {name for case in smoke_cases() for name in case.contenders} == set(ALL)


def test_memory_is_a_twentieth_of_the_master():
    assert {case.memory_bytes for case in full_cases() if case.master_rows == 20_000_000} == {120_000_000}
