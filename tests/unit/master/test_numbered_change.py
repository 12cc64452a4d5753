"""Change sets that are planned on the rows of the master: applied once, and repeatable."""

import multiprocessing
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from adjoin import ConflictError, Master, OptionError, VersionNotFoundError
from adjoin.master.numbered_change import NumberedChange, Planned, Settled
from tests.unit.master.tables import rows_of

START = pa.table({"id": [1, 2], "number": [1, 2]})


@pytest.fixture
def path(tmp_path: Path) -> str:
    Master.build(START, key="id", path=tmp_path / "master").close()
    return str(tmp_path / "master")


def held(master: Master) -> dict[int, int]:
    return {row["id"]: row["number"] for row in rows_of(master).to_pylist()}


def issue(master: Master, ids: list[int]) -> Planned:
    """Number the ids that the master lacks."""
    unseen = sorted(set(ids) - set(held(master)))
    highest = master.marks.get("number", 2)
    numbers = [highest + 1 + place for place in range(len(unseen))]
    changes = pa.table({"_op": ["upsert"] * len(unseen), "id": unseen, "number": numbers})
    return Planned(changes, {"number": highest + len(unseen)})


def issuing(ids: list[int]) -> Callable[[Master], Planned | None]:
    return lambda master: issue(master, ids) if set(ids) - set(held(master)) else None


def versions(settled: Settled) -> tuple[int, int, bool]:
    return settled.before.version, settled.after.version, settled.is_repetition


def other_writer(path: str, number: int) -> Master:
    return Master.open(path).apply(pa.table({"_op": ["upsert"], "id": [1000 + number], "number": [-number]}))


def test_a_change_becomes_the_version_after_its_base(path):
    settled = NumberedChange(Master.open(path), ("a", 0)).settle(issuing([2, 3, 4]))
    assert versions(settled) == (1, 2, False)
    assert held(settled.after) == {1: 1, 2: 2, 3: 3, 4: 4}
    assert settled.after.marks == {"number": 4}


def test_a_change_that_changes_nothing_commits_no_version(path):
    assert versions(NumberedChange(Master.open(path), ("a", 0)).settle(issuing([2]))) == (1, 1, False)
    assert Master.open(path).version == 1


def test_a_repetition_finds_the_same_versions_whatever_happened_since(path):
    NumberedChange(Master.open(path), ("a", 0)).settle(issuing([3]))
    for number in range(5):
        other_writer(path, number).vacuum(keep=1)
    Master.open(path).apply(pa.table({"_op": ["delete"], "id": [3]}))
    settled = NumberedChange(Master.open(path), ("a", 0)).settle(lambda _: pytest.fail("planned again"))
    assert versions(settled) == (1, 2, True)
    assert held(settled.after)[3] == 3


def test_a_change_that_changed_nothing_sees_the_same_version_again(path):
    NumberedChange(Master.open(path), ("a", 0)).settle(issuing([2]))
    Master.open(path).apply(pa.table({"_op": ["delete"], "id": [2]})).vacuum(keep=1)
    assert versions(NumberedChange(Master.open(path), ("a", 0)).settle(issuing([2]))) == (1, 1, False)


def test_a_crash_between_plan_and_commit_leaves_nothing_behind(path):
    def crash(_: Master) -> Planned:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        NumberedChange(Master.open(path), ("a", 0)).settle(crash)
    other_writer(path, 0)
    settled = NumberedChange(Master.open(path), ("a", 0)).settle(issuing([3]))
    assert versions(settled) == (2, 3, False)
    assert versions(NumberedChange(Master.open(path), ("a", 0)).settle(issuing([3]))) == (2, 3, True)


def test_a_change_is_planned_again_after_a_faster_writer(path):
    bases = []

    def plan(master: Master) -> Planned:
        bases.append(master.version)
        if len(bases) < 4:
            faster = issue(master, [3, 10 * len(bases)])
            Master.open(path).apply(faster.changes, marks=faster.marks)
        return issue(master, [3, 4])

    settled = NumberedChange(Master.open(path), ("a", 0)).settle(plan)
    assert bases == [1, 2, 3, 4]
    assert versions(settled) == (4, 5, False)
    assert held(settled.after) == {1: 1, 2: 2, 3: 3, 10: 4, 20: 5, 30: 6, 4: 7}
    assert versions(NumberedChange(Master.open(path), ("a", 0)).settle(plan)) == (4, 5, True)


def test_a_change_that_is_always_overtaken_fails_without_effect(path):
    def plan(master: Master) -> Planned:
        other_writer(path, master.version)
        return issue(master, [3])

    with pytest.raises(ConflictError, match="in all of 20 attempts"):
        NumberedChange(Master.open(path), ("a", 0)).settle(plan)
    assert 3 not in held(Master.open(path))


def test_another_process_with_the_same_change_is_not_a_conflict(path):
    def plan(master: Master) -> Planned:
        twin = issue(master, [3])
        Master.open(path).apply(twin.changes, txn=("a", 0), marks=twin.marks)
        other_writer(path, 0)
        return issue(master, [3])

    assert versions(NumberedChange(Master.open(path), ("a", 0)).settle(plan)) == (1, 2, True)


def test_a_lost_record_is_recovered_from_the_versions(path):
    other_writer(path, 0)
    NumberedChange(Master.open(path), ("a", 0)).settle(issuing([3]))
    other_writer(path, 1)
    shutil.rmtree(Path(path) / "bases")
    assert versions(NumberedChange(Master.open(path), ("a", 0)).settle(issuing([3]))) == (2, 3, True)


def test_a_lost_version_is_an_error(path):
    NumberedChange(Master.open(path), ("a", 0)).settle(issuing([3]))
    shutil.rmtree(Path(path) / "bases")
    other_writer(path, 1).vacuum(keep=1)
    with pytest.raises(VersionNotFoundError, match="the version before it is gone"):
        NumberedChange(Master.open(path), ("a", 0)).settle(issuing([3]))


def test_vacuum_keeps_only_the_versions_of_the_last_two_numbers(path):
    for number in range(4):
        NumberedChange(Master.open(path), ("a", number)).settle(issuing([10 + number]))
    other_writer(path, 0).vacuum(keep=1)
    assert Master.open(path).versions() == [3, 4, 5, 6]


@pytest.mark.parametrize("txn", ["a", ("a",), ("", 1), ("a", -1), ("a", True), ("a", "1"), (1, "a")])
def test_a_change_needs_a_name_and_a_number(path, txn):
    with pytest.raises(OptionError, match="give a name and the number"):
        NumberedChange(Master.open(path), txn)


def issue_many(path: str, name: str, first: int) -> None:
    for number in range(12):
        ids = [first + number, 100 + number, 112 - number]
        NumberedChange(Master.open(path), (name, number)).settle(issuing(ids))


def test_concurrent_processes_number_every_id_exactly_once(path):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=issue_many, args=(path, f"p{n}", 200 + 50 * n)) for n in range(3)]
    for process in processes:
        process.start()
    for number in range(10):
        try:
            other_writer(path, number)
        except ConflictError:
            continue
    for process in processes:
        process.join()
        assert process.exitcode == 0
    master = Master.open(path)
    issued = {key: number for key, number in held(master).items() if number > 0}
    assert master.rows == len(held(master))
    wanted = {1, 2, *range(100, 113), *(200 + 50 * n + k for n in range(3) for k in range(12))}
    assert set(issued) == wanted
    assert sorted(issued.values()) == list(range(1, len(wanted) + 1))
    assert master.marks == {"number": len(wanted)}
