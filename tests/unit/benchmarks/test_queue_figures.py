"""Figures of joins whose rows wait in a queue: sizes, shares and predictions."""

import numpy as np
import pytest

from benchmarks.figures.cmeshjoin.bound import allowed
from benchmarks.figures.cmeshjoin.data import Synthetic
from benchmarks.figures.cmeshjoin.setting import CMESHJOIN
from benchmarks.figures.figure import World
from benchmarks.figures.queues.measures import predict, serve
from benchmarks.figures.queues.popularity import continuous_share
from benchmarks.figures.queues.setting import QueueSetting
from benchmarks.figures.queues.times import slow_stream
from workloads import Zipf


@pytest.fixture
def world(tmp_path):
    return World(scale=1000, data=tmp_path)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_shares_match_the_keys_drawn(exponent):
    drawn = Zipf(1000, exponent, form="continuous", seed=1).draw(200_000)
    edges = [1, 10, 500]
    measured = [np.mean(drawn < edge) for edge in edges]
    assert continuous_share(edges, 1000, exponent) == pytest.approx(measured, abs=0.01)


def test_pending_rows_are_limited_to_what_the_papers_memory_holds(world):
    scaled = QueueSetting("hybridjoin", disk_pages=2000).at(world)
    assert scaled.page_counts == (2, 0)
    assert scaled.waiting_rows == pytest.approx((50_000 - 2 * 8192) / 32, abs=1)


@pytest.mark.parametrize("algorithm", ["meshjoin", "inlj"])
def test_measured_and_predicted_rates_agree(algorithm, world):
    setting = QueueSetting(algorithm)
    predicted = predict(setting.with_(model="corrected").at(world)).rows_per_second
    assert serve(setting.at(world)).rows_per_second == pytest.approx(predicted, rel=0.1)


def test_a_slow_stream_waits_less_than_a_read(world):
    stays = slow_stream(QueueSetting("hybridjoin", arrivals=10).at(world))
    assert 0 <= stays.waiting < 0.1 < stays.processing + 0.1


def test_merged_keys_keep_the_share_of_the_most_frequent(world):
    batch = next(Synthetic(rows=1_000_000).stream(world))
    counts = np.sort(np.bincount(batch.column("key").to_numpy(), minlength=1000))
    exact = np.log(10_000) + 0.5772
    assert counts[-10:].sum() / counts.sum() == pytest.approx(exact / (np.log(1e6) + 0.5772), abs=0.02)


def test_the_papers_model_allows_less_than_it_claims():
    assert allowed(CMESHJOIN.with_(memory=0.01)) == pytest.approx(2.4, abs=0.1)
    assert allowed(CMESHJOIN) == pytest.approx(3.8, abs=0.1)
