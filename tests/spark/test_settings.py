"""Joins and loads under settings of Spark that are drawn from seeds: `make test-spark-settings`.

With `SEEDS=3,17` it repeats what a failure has named.
"""

import json
import os
from pathlib import Path

import pytest

from adjoin import Master
from tests.spark.on_settings import Settings, prepare
from tests.spark.programs import Program
from tests.unit.master.tables import rows_of as stored_rows

SEEDS = [int(seed) for seed in os.environ.get("ADJOIN_SETTINGS_SEEDS", "0,1,2,3,4").split(",")]


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_settings_do_not_change_the_rows(tmp_path: Path, seed: int) -> None:
    drivers = Settings.of(seed).drivers
    prepare(tmp_path, seed)
    for driver in range(drivers):
        (tmp_path / f"driver {driver}").mkdir()
    programs = [
        Program("on_settings", tmp_path, driver, seed, work=tmp_path / "logs") for driver in range(drivers)
    ]
    for program in programs:
        assert program.wait(600) == 0, program.told()
    stored = {row["number"]: row["key"] for row in stored_rows(Master.open(tmp_path / "keys")).to_pylist()}
    assert sorted(stored.values()) == list(range(1, len(stored) + 1))
    for driver in range(drivers):
        issued = json.loads((tmp_path / f"driver {driver}" / "issued.json").read_text())
        assert {int(number): key for number, key in issued.items()}.items() <= stored.items()
