from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin import SSIJ, Master, OptionError
from tests.unit.workloads.measures import chi_square_excess
from workloads import MasterRows
from workloads.masters import Spread


def counts_of(master: MasterRows) -> np.ndarray:
    return np.bincount(master.table()["key"].to_numpy(), minlength=master.keys)


@pytest.mark.parametrize("per_key", [1, 2, 7, 400])
def test_every_key_has_the_same_number_of_rows(per_key: int) -> None:
    master = MasterRows(2800 * per_key, per_key=per_key)
    assert master.keys == 2800
    assert counts_of(master).tolist() == [per_key] * 2800


@pytest.mark.parametrize("per_key", [1, 16, 320])
def test_drawn_keys_are_uniform(per_key: int) -> None:
    rows = 320_000
    counts = counts_of(MasterRows(rows, per_key=per_key, spread="random", seed=1))
    assert len(counts) == rows // per_key
    assert counts.var() == pytest.approx(per_key, rel=0.2)  # as of a Poisson number
    assert (counts == 0).mean() == pytest.approx(np.exp(-per_key), abs=0.01)
    segments = counts.reshape(100, -1).sum(axis=1)
    assert chi_square_excess(segments, np.full(100, 0.01)) < 5
    assert chi_square_excess(segments, np.full(100, 0.01)) > -5


def test_neighboring_drawn_keys_are_independent() -> None:
    counts = counts_of(MasterRows(320_000, per_key=16, spread="random", seed=2))
    assert abs(np.corrcoef(counts[1:], counts[:-1])[0, 1]) < 0.03


@pytest.mark.parametrize("spread", ["equal", "random"])
def test_rows_are_in_key_order(spread: Spread) -> None:
    table = MasterRows(50_000, per_key=5, spread=spread).table()
    assert np.diff(table["key"].to_numpy()).min() == 0
    assert table["row"].to_pylist() == list(range(50_000))


@pytest.mark.parametrize("spread", ["equal", "random"])
def test_a_seed_determines_the_rows_whatever_the_batch_sizes(spread: Spread) -> None:
    def make(seed: int) -> MasterRows:
        return MasterRows(1000, per_key=4, spread=spread, row_bytes=61, seed=seed)

    master = make(3)
    whole = master.table()
    for batch_rows in (1, 7, 999, 5000):
        assert master.reader(batch_rows).read_all().equals(whole)
    assert make(3).table().equals(whole)
    assert not make(4).table().equals(whole)


def test_a_master_larger_than_memory_is_made_batch_by_batch() -> None:
    reader = MasterRows(10**12, per_key=100, spread="random").reader(batch_rows=1000)
    before = pa.total_allocated_bytes()
    keys = reader.read_next_batch()["key"].to_numpy()
    assert pa.total_allocated_bytes() - before < 1 << 20
    assert keys.max() < 100


def test_a_master_is_built_from_the_reader_and_joined(tmp_path: Path) -> None:
    rows = MasterRows(3000, per_key=3, row_bytes=128)
    master = Master.build(rows.reader(batch_rows=100), key="key", path=tmp_path / "master")
    stream = pa.record_batch({"key": np.array([0, 999, 1000])})
    joined = pa.Table.from_batches(SSIJ(master, on="key", memory="4MB").run([stream]))
    assert sorted(joined["row"].to_pylist()) == [0, 1, 2, 2997, 2998, 2999]


@pytest.mark.parametrize(
    "options",
    [
        {"rows": 0},
        {"rows": 10, "per_key": 3},
        {"per_key": 0},
        {"spread": "zipf"},
        {"row_bytes": 16},
    ],
)
def test_invalid_options_are_named(options: dict[str, Any]) -> None:
    name = next(iter(options))
    with pytest.raises(OptionError, match=f"{name}="):
        MasterRows(**{"rows": 10, **options})
