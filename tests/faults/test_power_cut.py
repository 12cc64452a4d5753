from pathlib import Path

import pytest

from adjoin.master import files
from tests.faults.world import SCENARIOS, PowerCut, World, fresh


@pytest.mark.parametrize("survives", [pytest.param("all", marks=pytest.mark.slow), "nothing", "names"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_power_can_fail_before_any_step(
    name: str, survives: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever step is the last, committed versions are intact and the next attempt succeeds."""
    scenario = SCENARIOS[name]
    scenario.prepare(tmp_path / "template")
    step = 0
    while True:
        step += 1
        path = fresh(tmp_path / "template", tmp_path / "copy")
        stopped = False
        with monkeypatch.context() as patch:
            patch.setattr(files, "change", World(step, survives).change)
            try:
                scenario.act(path)
            except PowerCut:
                stopped = True
        scenario.check(path)
        if not stopped:
            break
    assert step > 10
