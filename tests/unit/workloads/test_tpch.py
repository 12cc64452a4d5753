import sys
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from adjoin import Master, OptionError, ProgramError, StorageError
from tests.unit.workloads.measures import chi_square_excess, discrete_shares
from workloads import TPCH
from workloads.tpch import MasterTable

SCALE = 0.01
JOINS: list[tuple[MasterTable, str, int, int]] = [
    ("part", "lineitem", 2000, 60_175),
    ("customer", "orders", 1500, 15_000),
]
PROGRAM = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"

needs_program = pytest.mark.skipif(
    not PROGRAM.exists(), reason="tpchgen-cli is not installed: pip install 'adjoin[bench]'"
)
each_join = pytest.mark.parametrize(("master", "stream", "master_rows", "stream_rows"), JOINS)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tpch")


def without_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str | None = None) -> None:
    """Another program in its place, or none."""
    if script:
        program = tmp_path / "tpchgen-cli"
        program.write_text(f"#!{sys.executable}\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))


def keys_of(tpch: TPCH, **options: Any) -> np.ndarray:
    return tpch.stream(columns=[tpch.stream_key], **options).read_all()[tpch.stream_key].to_numpy()


@needs_program
@each_join
def test_tables_have_the_rows_of_the_benchmark(data, master, stream, master_rows, stream_rows) -> None:
    tpch = TPCH(data, master, scale=SCALE)
    keys = tpch.master(columns=[tpch.master_key]).read_all()[tpch.master_key].to_numpy()
    np.testing.assert_array_equal(keys, np.arange(1, master_rows + 1))
    assert tpch.stream().read_all().num_rows == stream_rows
    assert {path.name for path in (data / "scale-0.01").iterdir()} >= {
        f"{master}.parquet",
        f"{stream}.parquet",
    }


@needs_program
def test_plain_keys_are_uniform_over_the_parts_and_two_thirds_of_the_customers(data) -> None:
    parts = np.bincount(keys_of(TPCH(data, "part", scale=SCALE)), minlength=2001)[1:]
    assert chi_square_excess(parts, np.full(2000, 1 / 2000)) < 5
    customers = np.bincount(keys_of(TPCH(data, "customer", scale=SCALE)), minlength=1501)[1:]
    assert (customers > 0).sum() == 1000
    assert chi_square_excess(customers[customers > 0], np.full(1000, 1 / 1000)) < 5


@needs_program
@each_join
@pytest.mark.parametrize("exponent", [0.5, 1.0])
def test_skewed_keys_follow_zipfs_law(
    data, master, stream, master_rows, stream_rows, exponent: float
) -> None:
    tpch = TPCH(data, master, scale=SCALE, exponent=exponent, placement="noperm", seed=5)
    keys = keys_of(tpch)
    assert len(keys) == stream_rows
    assert keys.min() == 1
    counts = np.bincount(keys - 1, minlength=master_rows)
    assert len(counts) == master_rows
    assert chi_square_excess(counts, discrete_shares(master_rows, exponent)) < 5


@needs_program
@each_join
def test_hot_keys_are_scattered_by_default(data, master, stream, master_rows, stream_rows) -> None:
    keys = keys_of(TPCH(data, master, scale=SCALE, exponent=1.0, seed=5))
    counts = np.bincount(keys - 1, minlength=master_rows)
    hottest = np.argsort(-counts)[:20]
    assert counts[hottest[:4]] / stream_rows == pytest.approx(discrete_shares(master_rows, 1.0)[:4], rel=0.1)
    assert 0.3 < hottest.mean() / master_rows < 0.7
    assert (np.diff(np.sort(hottest)) > 1).sum() > 10


@needs_program
@each_join
def test_skew_changes_only_the_key(data, master, stream, master_rows, stream_rows) -> None:
    plain = TPCH(data, master, scale=SCALE).stream().read_all()
    skewed = TPCH(data, master, scale=SCALE, exponent=1.0).stream().read_all()
    key = TPCH(data, master, scale=SCALE).stream_key
    assert skewed.schema.equals(plain.schema)
    assert skewed.drop_columns([key]).equals(plain.drop_columns([key]))
    assert (skewed[key].to_numpy() != plain[key].to_numpy()).mean() > 0.9


@needs_program
@pytest.mark.parametrize("exponent", [None, 1.0])
def test_a_seed_determines_the_rows_whatever_the_batch_sizes(data, exponent: float | None) -> None:
    tpch = TPCH(data, "customer", scale=SCALE, exponent=exponent, seed=3)
    whole = tpch.stream().read_all()
    for batch_rows in (7, 999, 100_000):
        assert tpch.stream(batch_rows=batch_rows).read_all().equals(whole)
    assert tpch.stream(rows=1234, batch_rows=100).read_all().equals(whole.slice(0, 1234))
    other = TPCH(data, "customer", scale=SCALE, exponent=exponent, seed=4).stream().read_all()
    assert other.equals(whole) == (exponent is None)


@needs_program
def test_of_a_large_table_only_the_beginning_is_written(tmp_path, data) -> None:
    first = TPCH(tmp_path, "part", scale=SCALE).stream(rows=3000).read_all()
    (path,) = (tmp_path / "scale-0.01").iterdir()
    assert 3000 <= pq.read_metadata(path).num_rows < 6000
    assert first.equals(TPCH(data, "part", scale=SCALE).stream().read_all().slice(0, 3000))


@needs_program
def test_files_are_written_once(data, tmp_path, monkeypatch) -> None:
    TPCH(data, "customer", scale=SCALE).master_path()
    without_program(monkeypatch, tmp_path)
    assert TPCH(data, "customer", scale=SCALE).master().read_all().num_rows == 1500


@needs_program
def test_a_master_is_built_from_the_reader(data, tmp_path) -> None:
    tpch = TPCH(data, "part", scale=SCALE)
    master = Master.build(tpch.master(), key=tpch.master_key, path=tmp_path / "master")
    assert master.rows == 2000


@needs_program
def test_missing_rows_and_columns_are_named(data) -> None:
    tpch = TPCH(data, "customer", scale=SCALE)
    with pytest.raises(OptionError, match=r"rows=15001: orders has 15000 at scale 0\.01"):
        tpch.stream(rows=15_001)
    with pytest.raises(OptionError, match=r"o_price.*o_totalprice"):
        tpch.stream(columns=["o_price"])
    with pytest.raises(OptionError, match="batch_rows=0"):
        tpch.master(batch_rows=0)


def test_a_missing_program_is_named_with_what_to_install(tmp_path, monkeypatch) -> None:
    without_program(monkeypatch, tmp_path)
    with pytest.raises(ProgramError, match=r"tpchgen-cli .*pip install 'adjoin\[bench\]'"):
        TPCH(tmp_path / "data", "part").master()


def test_the_output_of_a_failed_program_is_passed_on_and_nothing_is_left(tmp_path, monkeypatch) -> None:
    without_program(monkeypatch, tmp_path, "raise SystemExit('no room on the disk')")
    with pytest.raises(ProgramError, match=r"--tables part .* ended with 1: no room on the disk"):
        TPCH(tmp_path / "data", "part").master()
    assert list((tmp_path / "data" / "scale-1").iterdir()) == []


def test_a_directory_that_cannot_be_written_is_named(tmp_path) -> None:
    (tmp_path / "data").touch()
    with pytest.raises(StorageError, match="data"):
        TPCH(tmp_path / "data", "part").master()


@pytest.mark.parametrize(
    "options",
    [
        {"master": "supplier"},
        {"scale": 0.0},
        {"scale": float("nan")},
        {"exponent": -1.0},
        {"placement": "sorted", "exponent": 1.0},
    ],
)
def test_invalid_options_are_named(tmp_path, options: dict[str, Any]) -> None:
    name = next(iter(options))
    with pytest.raises(OptionError, match=f"{name}="):
        TPCH(**{"directory": tmp_path, "master": "part", **options})


def test_a_negative_number_of_rows_is_rejected(tmp_path) -> None:
    with pytest.raises(OptionError, match="rows=-1"):
        TPCH(tmp_path, "part").stream(rows=-1)
