from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.figures import page, store
from benchmarks.figures.catalogue import chosen, figures
from benchmarks.figures.figure import REAL, SIMULATED, Curves, Figure, Measurement, Sweep, Verdict, World
from benchmarks.figures.masters import KeyedMaster
from benchmarks.figures.measures import sustainable_rate
from benchmarks.figures.run import measure, measure_curve
from benchmarks.figures.setting import Setting
from benchmarks.figures.simulation import Machine, Stream, highest_rate, keeps_up, service, simulated_machine
from benchmarks.figures.ssij.setting import SSIJ
from benchmarks.figures.variants import contender_named
from workloads import ConstantRate

DOCS = Path(__file__).parents[3] / "docs" / "figures"


class Clerk:
    """Collects rows until he has enough, then works on them for some time, in which only some find room."""

    def __init__(self, machine: Machine, enough: int, seconds: float, room: int) -> None:
        self._machine = machine
        self._enough = enough
        self._seconds = seconds
        self._room = room
        self._is_working = False
        self._waiting = 0
        self._counts = {"rows_in": 0, "pages_read": 0, "seeks": 0, "cache_hits": 0}

    def offer(self, batch: pa.RecordBatch) -> bool:
        if self._is_working and self._waiting + batch.num_rows > self._room:
            return False
        self._waiting += batch.num_rows
        self._counts["rows_in"] += batch.num_rows
        return True

    def push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        assert self.offer(batch)
        while self._waiting >= self._enough:
            self._waiting -= self._enough
            self._counts["pages_read"] += 1
            self._is_working = True
            for _ in range(100):
                self._machine.clock.sleep(self._seconds / 100)
                yield batch
            self._is_working = False

    def metrics(self) -> dict[str, float]:
        return {**self._counts, "rows_waiting": self._waiting}


def stream(rows: int) -> Stream:
    return Stream(pa.record_batch({"key": np.arange(rows)}), round_pages=10, portion_rows=10)


def rate_of(enough: int, seconds: float, room: int) -> tuple[float, float]:
    """Service rate and sustainable rate."""
    rows = stream(100_000)

    def clerk(machine: Machine) -> Clerk:
        return Clerk(machine, enough, seconds, room)

    def is_kept(rate: float) -> bool:
        machine = replace(simulated_machine(), row_seconds=0.0)
        return keeps_up(clerk(machine), machine, rows, ConstantRate(rate))  # type: ignore[arg-type]

    machine = replace(simulated_machine(), row_seconds=0.0)
    served = service(clerk(machine), machine, rows).rows_per_second  # type: ignore[arg-type]
    return served, highest_rate(is_kept, served)


def test_with_enough_room_the_service_rate_is_sustainable():
    served, sustained = rate_of(enough=1000, seconds=2.0, room=3000)
    assert served == pytest.approx(500)
    assert sustained == pytest.approx(500, rel=0.03)


def test_if_rows_find_no_room_while_the_operator_works_room_limits_the_rate():
    served, sustained = rate_of(enough=1000, seconds=2.0, room=400)
    assert served == pytest.approx(500)
    assert sustained == pytest.approx(200, rel=0.06)


def test_processor_time_is_charged_for_every_row():
    machine = simulated_machine()
    clerk = Clerk(machine, enough=1000, seconds=1e-3, room=3000)
    served = service(clerk, machine, stream(50_000))  # type: ignore[arg-type]
    assert served.rows_per_second == pytest.approx(1 / (1e-6 + 1e-6))


@pytest.mark.parametrize("limit", [3.0, 700.0, 999.0])
def test_bisection_finds_the_limit_within_its_tolerance(limit):
    found = highest_rate(lambda rate: rate <= limit, most=1000.0)
    assert 0.97 * limit <= found <= limit


def test_the_rate_is_zero_if_none_is_kept():
    assert highest_rate(lambda _: False, most=1000.0) == 0


def small() -> Figure[Setting]:
    base = SSIJ.with_master(rows=32_000, per_key=4).with_stream(keys=8_000, rows=10_000).with_memory(0.15)
    return Figure(
        name="small",
        paper=figures()["ssij-03"].paper,
        title="A small figure",
        claim="It rises.",
        sweep=Sweep("skew", (0.0, 1.0), lambda setting, x: setting.with_stream(skew=x)),
        contenders={"SSIJ": base, "MeshJoin": replace(base, algorithm="meshjoin")},
        measure=sustainable_rate,
        devices=(SIMULATED, REAL),
        verdict=lambda curves: Verdict(curves.growth("SSIJ") > 1.2, f"{curves.growth('SSIJ'):.1f}", "why"),
    )


def test_a_point_shared_by_two_figures_is_measured_once(tmp_path, monkeypatch):
    measured = []

    def double(setting: float, _: World) -> Measurement:
        measured.append(setting)
        return Measurement(2 * setting)

    def figure(name: str, *values: float) -> Figure[float]:
        return Figure(
            name=name,
            paper=figures()["ssij-05"].paper,
            title="",
            claim="",
            sweep=Sweep("x", values, lambda setting, x: setting + x),
            contenders={"low": 0.0, "high": 10.0},
            measure=double,
            verdict=lambda _: Verdict(holds=True, number=""),
            unit="",
        )

    both = {"first": figure("first", 1, 2, 3), "second": figure("second", 2, 11, 4)}
    monkeypatch.setattr("benchmarks.figures.run.figures", lambda: both)
    world = World(1, tmp_path)
    curves = list(measure([(each, world) for each in both.values()], 1))
    assert sorted(measured) == [1, 2, 3, 4, 11, 12, 13, 14, 21]
    found = {(each.figure, each.contender): [point["value"] for point in each.points] for each in curves}
    assert found["first", "low"] == [2, 4, 6]
    assert found["first", "high"] == [22, 24, 26]
    assert found["second", "low"] == [4, 22, 8]
    assert found["second", "high"] == [24, 42, 28]


@pytest.mark.slow
def test_the_same_figure_gives_the_same_numbers_again(tmp_path, monkeypatch):
    world = World(scale=1, data=tmp_path)
    monkeypatch.setitem(figures(), "small", small())
    first, second = (measure_curve("small", "SSIJ", world).points for _ in range(2))
    assert first == second
    assert first[1]["value"] > 1.2 * first[0]["value"]
    meshjoin = measure_curve("small", "MeshJoin", world).points
    assert meshjoin[0]["value"] == meshjoin[1]["value"]


def test_a_claim_that_does_not_hold_is_reported_with_a_reason():
    flat = Curves((0.0, 1.0), dict.fromkeys(figures()["ssij-03"].contenders, (5.0, 5.0)))
    verdict = figures()["ssij-03"].verdict(flat)
    assert not verdict.holds
    assert verdict.why
    with pytest.raises(ValueError, match="needs a reason"):
        Verdict(holds=False, number="3 x")


def test_results_are_stored_drawn_and_described_separately(tmp_path):
    draw = pytest.importorskip("benchmarks.figures.draw")
    figure = small()
    origin = {"run": "now", "commit": "abc", "machine": "two cores", "seed": 1, "scale": 1, "figure": "small"}
    for device, rates in ((SIMULATED, (10.0, 20.0)), (REAL, (1000.0, 1000.0))):
        rows = [
            {**origin, "device": device, "contender": name, "x": x, "value": value, "metrics": {}}
            for name in figure.contenders
            for x, value in zip(figure.sweep.values, rates, strict=True)
        ]
        store.write(tmp_path, figure, device, rows)
    stored = store.Stored(tmp_path, figure)
    assert stored.curves(SIMULATED).growth("SSIJ") == 2.0
    assert stored.curves(REAL).growth("SSIJ") == 1.0
    for name in ("one.svg", "two.svg"):
        draw.draw(stored, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    page.write(tmp_path, [figure])
    text = (tmp_path / "README.md").read_text()
    assert "| [small](#small) | It rises. | 2.0 | holds |" in text
    assert "| MeshJoin | 1,000 | 1,000 |" in text


def test_figures_are_chosen_by_prefix():
    assert [figure.name for figure in chosen(["ssij-03", "ssij-04"])] == ["ssij-03", "ssij-04"]
    assert len(chosen([])) == len(figures())
    with pytest.raises(SystemExit, match="no figure ssij-99"):
        chosen(["ssij-99"])


@pytest.mark.parametrize("name", figures())
def test_every_figure_is_complete(name):
    figure = figures()[name]
    assert name.startswith(figure.paper.name + "-")
    for text in (figure.title, figure.claim, figure.paper.citation, figure.paper.setting, figure.unit):
        assert text
    values = figure.sweep.values
    assert len(values) > 1
    assert all(one < next_ for one, next_ in pairwise(values))
    for setting in figure.contenders.values():
        for x in values:
            at = figure.sweep.at(setting, x)
            if isinstance(at, Setting):
                contender_named(at.algorithm, finds_results=at.finds_results)
    rising = Curves(values, {each: tuple(range(1, len(values) + 1)) for each in figure.contenders})
    assert figure.verdict(rising).number


@pytest.mark.parametrize("name", figures())
def test_stored_results_are_those_of_the_figure_as_declared(name):
    stored = store.Stored(DOCS, figures()[name])
    if not stored.rows:
        pytest.skip("not measured yet")
    assert stored.verdict.number
    assert (DOCS / f"{name}.svg").exists()
    scales = {row["scale"] for row in stored.rows if row["device"] == SIMULATED}
    assert scales <= {str(stored.figure.paper.scale)}


@pytest.mark.parametrize("per_key", [1, 8])
def test_masters_are_built_once(tmp_path, per_key):
    world = World(scale=10, data=tmp_path)
    master = KeyedMaster(rows=80_000, per_key=per_key)
    with master.open(world) as one:
        assert one.rows == 8000
        built = [path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("*")) if path.suffix != ".lock"]
    master.open(world).close()
    again = [path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("*")) if path.suffix != ".lock"]
    assert len(again) >= len(built)
