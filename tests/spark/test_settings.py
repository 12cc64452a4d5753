"""Joins and loads under settings of Spark that are drawn from seeds: `make test-spark-settings`.

With `SEEDS=3,17` it repeats what a failure has named.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from adjoin import Master
from tests.spark.cluster import Cluster
from tests.spark.on_settings import Settings, prepare
from tests.spark.programs import Program
from tests.unit.master.tables import rows_of as stored_rows

SEEDS = [int(seed) for seed in os.environ.get("ADJOIN_SETTINGS_SEEDS", "0,1,2,3,4").split(",")]
LONGEST_SECONDS = 600.0


@contextmanager
def cluster_of(settings: Settings, work: Path) -> Iterator[list[str]]:
    """The address of a cluster with two hosts, for settings that need one."""
    if not settings.is_speculating:
        yield []
        return
    work.mkdir()
    cluster = Cluster(work, hosts=("127.0.0.1", "127.0.0.2"))
    try:
        cluster.start()
        yield [cluster.url]
    finally:
        cluster.stop()


@pytest.mark.slow
@pytest.mark.timeout(LONGEST_SECONDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_settings_do_not_change_the_rows(tmp_path: Path, seed: int) -> None:
    settings = Settings.of(seed)
    prepare(tmp_path, seed)
    with cluster_of(settings, tmp_path / "cluster") as cluster:
        programs = []
        for driver in range(settings.drivers):
            (tmp_path / f"driver {driver}").mkdir()
            programs.append(Program("on_settings", tmp_path, driver, seed, *cluster, work=tmp_path / "logs"))
        for program in programs:
            assert program.wait(LONGEST_SECONDS) == 0, program.told()
            print(program.told())
    stored = {row["number"]: row["key"] for row in stored_rows(Master.open(tmp_path / "keys")).to_pylist()}
    assert sorted(stored.values()) == list(range(1, len(stored) + 1))
    for driver in range(settings.drivers):
        issued = json.loads((tmp_path / f"driver {driver}" / "issued.json").read_text())
        assert {int(number): key for number, key in issued.items()}.items() <= stored.items()
