from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adjoin.master import files
from adjoin.master.version_records import QueryRecords
from tests.faults.world import Query, World


class _Killed(BaseException):
    """Kills one task; others continue."""


@pytest.mark.parametrize("survives", ["all", "nothing", "names"])
def test_a_version_read_by_another_task_is_durable(
    survives: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deciding task is killed before any step, another one reads the record, then the power fails."""
    step, killed = 0, True
    while killed:
        step += 1
        path = tmp_path / str(step)
        Query().prepare(path)
        records, world = QueryRecords(path / "m"), World(survives=survives)
        with monkeypatch.context() as patch:
            patch.setattr(files, "change", _killing(world, step))
            killed = _dies(records)
            patch.setattr(files, "change", world.change)
            told = records.version_for(Query.QUERY, 0)
            world.cut()
        Query().move_on(path)
        assert records.version_for(Query.QUERY, 0) == told
    assert step > 8


def _killing(world: World, step: int) -> Callable[..., Any]:
    def change(operation: str, path: str, action: Callable[[], Any]) -> Any:
        if world.steps == step - 1:
            raise _Killed
        return world.change(operation, path, action)

    return change


def _dies(records: QueryRecords) -> bool:
    try:
        records.version_for(Query.QUERY, 0)
    except _Killed:
        return True
    return False


def test_the_simulated_power_cut_drops_records_that_were_not_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the test above could never fail."""
    Query().prepare(tmp_path / "p")
    records, world = QueryRecords(tmp_path / "p" / "m"), World(survives="nothing")
    with monkeypatch.context() as patch:
        patch.setattr(files, "sync_dir", lambda path: None)
        patch.setattr(files, "change", world.change)
        assert records.version_for(Query.QUERY, 0) == 1
        world.cut()
    Query().move_on(tmp_path / "p")
    assert records.version_for(Query.QUERY, 0) == 2
