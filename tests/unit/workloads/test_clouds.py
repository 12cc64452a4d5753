import numpy as np
import pyarrow as pa
import pytest

from adjoin import OptionError
from tests.unit.workloads.measures import chi_square_excess
from workloads import CloudReports
from workloads.clouds import LONGITUDES, Month

ROWS = 400_000
MONTHS: list[Month] = ["april", "august", "december"]


def counts_of(reader: pa.RecordBatchReader) -> np.ndarray:
    return np.bincount(reader.read_all()["longitude"].to_numpy(), minlength=LONGITUDES)


def excess(counts: np.ndarray, weights: np.ndarray) -> float:
    order = np.argsort(-weights)
    return chi_square_excess(counts[order], weights[order])


@pytest.mark.parametrize("month", MONTHS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_few_longitudes_have_most_reports(seed: int, month: Month) -> None:
    weights = np.sort(CloudReports(seed=seed).weights(month))[::-1]
    assert len(weights) == LONGITUDES
    assert weights.sum() == pytest.approx(1)
    assert weights.min() > 0
    assert 0.15 < weights[: LONGITUDES // 100].sum() < 0.4
    assert 0.6 < weights[: LONGITUDES // 10].sum() < 0.9


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_stations_are_close_together(seed: int) -> None:
    weights = CloudReports(seed=seed).weights("april")[:36_000]
    scattered = np.random.default_rng(seed).permutation(weights)
    lumps, even = (shares.reshape(360, 100).sum(axis=1).std() for shares in (weights, scattered))
    assert lumps > 3 * even


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_months_differ_slightly(seed: int) -> None:
    reports = CloudReports(seed=seed)
    april, august, december = (reports.weights(month) for month in MONTHS)
    master = (april + august) / 2
    assert 0.05 < np.abs(master - december).sum() / 2 < 0.2
    assert 0.9 < np.corrcoef(master, december)[0, 1] < 0.999


def test_worlds_differ_between_seeds() -> None:
    one, two = (CloudReports(seed=seed).weights("april") for seed in (1, 2))
    assert np.corrcoef(one, two)[0, 1] < 0.3


def test_reports_follow_the_weights_of_their_months() -> None:
    reports = CloudReports(seed=1)
    april, august, december = (reports.weights(month) for month in MONTHS)
    stream, master = counts_of(reports.stream(ROWS)), counts_of(reports.master(ROWS))
    assert excess(stream, december) < 5
    assert excess(stream, april) > 20
    assert excess(master, (april + august) / 2) < 5
    longitudes = reports.master(ROWS).read_all()["longitude"].to_numpy()
    assert excess(np.bincount(longitudes[: ROWS // 2], minlength=LONGITUDES), april) < 5
    assert excess(np.bincount(longitudes[ROWS // 2 :], minlength=LONGITUDES), august) < 5


def test_rows_have_128_bytes_and_are_numbered() -> None:
    table = CloudReports().master(rows=1001).read_all()
    assert table.nbytes == 1001 * 128
    assert table["row"].to_pylist() == list(range(1001))


@pytest.mark.parametrize("side", ["master", "stream"])
def test_a_seed_determines_the_reports_whatever_the_batch_sizes(side: str) -> None:
    def read(seed: int, batch_rows: int) -> pa.Table:
        return getattr(CloudReports(seed=seed), side)(rows=999, batch_rows=batch_rows).read_all()

    whole = read(3, 999)
    for batch_rows in (1, 7, 500, 5000):
        assert read(3, batch_rows).equals(whole)
    assert not read(4, 999).equals(whole)


def test_invalid_options_are_named() -> None:
    with pytest.raises(OptionError, match="month='may'"):
        CloudReports().weights("may")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="batch_rows=0"):
        CloudReports().master(batch_rows=0)
    with pytest.raises(OptionError, match="rows=-1"):
        CloudReports().stream(rows=-1)
