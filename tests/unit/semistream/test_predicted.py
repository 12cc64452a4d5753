"""What the models predict against what the operators do, on the simulated disk."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin import CMeshJoin, HybridJoin, Master, MeshJoin, XHybridJoin
from adjoin.master.device import HARD_DISK, SimulatedDisk
from adjoin.operators.clock import SimulatedClock
from adjoin.semistream.models import meshjoin, xhybridjoin
from adjoin.semistream.models.popularity import power_sum
from workloads import MasterRows, Records, Zipf

pytestmark = pytest.mark.slow

ROWS = 60_000
ROW_BYTES = 120
STREAM_ROWS = 240_000
BATCH_ROWS = 512


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Master:
    path = tmp_path_factory.mktemp("predicted") / "master"
    return Master.build(MasterRows(ROWS, row_bytes=ROW_BYTES).reader(), key="key", path=path)


class Run:
    """A stream that never runs dry, and what was seen in its second half.

    Attributes:
        input_rows: Rows that an iteration answers (w).
        waiting_rows: Rows that wait when it begins (h_S).
        rate: Rows a second.
    """

    def __init__(self, kind: Any, master: Master, memory: float, zipf: Zipf, **options: Any) -> None:
        clock = SimulatedClock()
        device = SimulatedDisk(clock, HARD_DISK)
        records = Records(20, seed=2)
        memory_bytes = int(memory * ROWS * ROW_BYTES)
        self.join = kind(master, on="key", memory=memory_bytes, device=device, clock=clock, **options)
        behind = getattr(self.join, "_join", self.join)
        self.seen: list[int] = []
        _watch(behind._algorithm, self.seen)
        with self.join as join:
            for done in range(0, STREAM_ROWS, BATCH_ROWS):
                if done == STREAM_ROWS // BATCH_ROWS // 2 * BATCH_ROWS:
                    self.seen.clear()
                    began = clock.now()
                for _ in join.push(records.batch(zipf.draw(BATCH_ROWS))):
                    pass
            rows = STREAM_ROWS // 2
            self.input_rows = rows / len(self.seen)
            self.waiting_rows = float(np.mean(self.seen))
            self.rate = rows / (clock.now() - began)
            self.metrics = join.metrics()
            self.disk_pages = behind.parts.pages.split.wave_pages


def _watch(algorithm: Any, seen: list[int]) -> None:
    join_phase = algorithm.join_phase

    def watched() -> Iterator[pa.RecordBatch]:
        seen.append(algorithm.rows_pending)
        return join_phase()

    algorithm.join_phase = watched


def page_weights(master: Master, zipf: Zipf) -> Any:
    share = np.arange(1.0, ROWS + 1) ** -zipf.exponent
    page = np.searchsorted(master.index.first, zipf.key_of(np.arange(ROWS)), "right") - 1
    return np.bincount(page, share, master.pages)


@pytest.mark.parametrize("placement", ["noperm", "random"])
@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("kind", "pinned"), [(HybridJoin, 0), (XHybridJoin, 12)])
def test_rows_per_iteration(kind, pinned, exponent, placement, master):
    zipf = Zipf(ROWS, exponent, placement=placement, seed=1)
    options = {"pinned_pages": pinned} if pinned else {}
    run = Run(kind, master, 0.15, zipf, disk_pages=16, **options)
    predicted = xhybridjoin.input_rows(
        page_weights(master, zipf), run.waiting_rows, 16, pinned, pinned_rows_wait=False
    )
    is_hard = kind is HybridJoin and exponent == 1.0
    assert run.input_rows == pytest.approx(predicted, rel=0.10 if is_hard else 0.05)


def test_the_equation_of_the_paper_is_far_off(master):
    zipf = Zipf(ROWS, 1.0, placement="noperm", seed=1)
    run = Run(XHybridJoin, master, 0.15, zipf, disk_pages=16, pinned_pages=12)
    pinned_share = float(np.sort(page_weights(master, zipf))[-12:].sum() / power_sum([ROWS], 1.0)[0])
    printed = xhybridjoin.paper_input_rows(run.waiting_rows, pinned_share, (master.pages - 12) / 16)
    assert run.input_rows > 2 * printed


@pytest.mark.parametrize("memory", [0.08, 0.2])
def test_rows_per_round_of_the_scan(memory, master):
    run = Run(MeshJoin, master, memory, Zipf(ROWS, 0.5, seed=1))
    portions = -(-master.pages // run.disk_pages)
    assert run.input_rows == pytest.approx(meshjoin.input_rows(run.waiting_rows, portions), rel=0.05)


def plain_and_cached(master: Master, exponent: float) -> tuple[Run, Run]:
    zipf: dict[str, Any] = {"exponent": exponent, "placement": "random", "seed": 1}
    plain = Run(MeshJoin, master, 0.2, Zipf(ROWS, **zipf))
    return plain, Run(CMeshJoin, master, 0.2, Zipf(ROWS, **zipf))


@pytest.mark.parametrize("exponent", [0.8, 1.0])
def test_the_gain_of_the_cache_is_what_it_answers_for_the_memory_it_takes(exponent, master):
    """Service rate of CMESHJOIN to MESHJOIN."""
    plain, cached = plain_and_cached(master, exponent)
    keys = int(cached.metrics["front_keys"])
    hit_share = float(power_sum([keys], exponent)[0] / power_sum([ROWS], exponent)[0])
    predicted = cached.waiting_rows / plain.waiting_rows / (1 - hit_share)
    assert cached.rate / plain.rate == pytest.approx(predicted, rel=0.10)


NOT_REACHED = (
    "1.09 since the bytes of the cache are counted in full, and keys that are hot by chance stay longer"
)


@pytest.mark.parametrize(
    "exponent", [pytest.param(0.8, marks=pytest.mark.xfail(reason=NOT_REACHED, strict=True)), 1.0]
)
def test_the_cache_gains(exponent, master):
    plain, cached = plain_and_cached(master, exponent)
    assert cached.rate > 1.15 * plain.rate


GRID = (4, 8, 16, 32, 64, 128)


def test_the_tuned_disk_buffer_is_within_a_step_of_the_best(master):
    zipf: dict[str, Any] = {"exponent": 1.0, "placement": "random", "seed": 1}
    rates = [Run(HybridJoin, master, 0.2, Zipf(ROWS, **zipf), disk_pages=pages).rate for pages in GRID]
    best = int(np.argmax(rates))
    tuned = Run(HybridJoin, master, 0.2, Zipf(ROWS, **zipf))
    assert GRID[max(best - 1, 0)] <= tuned.disk_pages <= GRID[min(best + 1, len(GRID) - 1)]
    assert tuned.rate > 0.93 * max(rates)


def test_the_tuned_pinned_part_is_within_a_step_of_the_best(master):
    zipf: dict[str, Any] = {"exponent": 1.0, "placement": "noperm", "seed": 1}
    rates = [Run(XHybridJoin, master, 0.2, Zipf(ROWS, **zipf), pinned_pages=pages).rate for pages in GRID]
    best = int(np.argmax(rates))
    tuned = Run(XHybridJoin, master, 0.2, Zipf(ROWS, **zipf))
    assert GRID[max(best - 1, 0)] <= tuned.metrics["pages_cached"] <= GRID[min(best + 1, len(GRID) - 1)]
    assert tuned.rate > 0.93 * max(rates)
