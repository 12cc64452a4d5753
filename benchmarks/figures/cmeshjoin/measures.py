"""What a point of these figures shows, measured or predicted."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache

import pyarrow as pa

from adjoin.master.device import SimulatedDisk
from adjoin.memory.arena import BLOCK_BYTES
from adjoin.operators.clock import SimulatedClock
from adjoin.semistream.models import cmeshjoin, meshjoin
from adjoin.semistream.models.iteration import best_buffer_bytes
from adjoin.semistream.models.setting import CostConstants
from adjoin.semistream.models.setting import Setting as Sizes
from benchmarks.figures.cmeshjoin.data import Synthetic
from benchmarks.figures.cmeshjoin.setting import CacheSetting, Scaled
from benchmarks.figures.figure import Measurement, World
from benchmarks.figures.simulation import Machine, real_machine

_PORTION_ROWS = 500
_FEW_ROWS = 300
MASTER_ROW_BYTES, WAITING_ROW_BYTES = 120, 24
"""Sizes in the paper; a cached row takes 8 bytes more."""
CACHED_ROW_BYTES_HERE, WAITING_ROW_BYTES_HERE = 159, 69
"""A row of 126 bytes on its page plus its table entry; a row of 20 bytes, its key and its state."""
_USED_SHARE = 0.9
"""The share of the memory not reserved for work and for rows that arrive in the meantime."""


@dataclass(frozen=True)
class Served:
    """A join in the steady state.

    Attributes:
        rows_per_second: The service rate.
        hit_share: Share of rows that the cache answers.
        cached_rows: Keys in the cache, at the paper's size.
        rows_waiting: Pending rows, at the paper's size.
    """

    rows_per_second: float
    hit_share: float = 0.0
    cached_rows: float = 0.0
    rows_waiting: float = 0.0


def service_rate(setting: CacheSetting, world: World) -> Measurement:
    """Rows per second when rows are always available."""
    served = served_in(setting, world)
    return Measurement(served.rows_per_second, vars(served))


def cached_rows(setting: CacheSetting, world: World) -> Measurement:
    """Thousand rows in the cache."""
    served = served_in(setting, world)
    return Measurement(served.cached_rows / 1000, vars(served))


@cache
def served_in(setting: CacheSetting, world: World) -> Served:
    """Measured or predicted, once for all figures that need it."""
    scaled = Scaled(setting, replace(world, scale=max(1, world.scale // setting.data.finer)))
    return serve(scaled) if setting.model is None else predict(scaled)


def sizes_of(setting: CacheSetting) -> Sizes:
    """The sizes that models take, at the paper's size; rows, cache and disk buffer use all the memory."""
    assert isinstance(setting.data, Synthetic)
    master_rows = setting.data.rows
    memory = setting.memory_bytes or setting.memory * master_rows * MASTER_ROW_BYTES
    if setting.model == "paper":
        return Sizes(memory, master_rows, MASTER_ROW_BYTES, WAITING_ROW_BYTES)
    return Sizes(_USED_SHARE * memory, master_rows, CACHED_ROW_BYTES_HERE - 8, WAITING_ROW_BYTES_HERE)


def predict(scaled: Scaled) -> Served:
    """The model of the paper; the join behind the cache has the rate of the MESHJOIN model."""
    setting, sizes = scaled.setting, sizes_of(scaled.setting)
    assert isinstance(setting.data, Synthetic)
    cached = cmeshjoin.best_cache_rows(sizes, setting.data.skew)
    if setting.cache_share is not None:
        cached = setting.cache_share * sizes.memory_bytes / (sizes.master_row_bytes + 8)
    rest = Sizes(
        sizes.memory_bytes - cached * (sizes.master_row_bytes + 8),
        sizes.master_rows,
        scaled.master.bytes / scaled.master.rows,
        sizes.waiting_row_bytes,
    )
    disk = CostConstants(
        scaled.disk.positioning_seconds * scaled.world.scale, scaled.disk.block_seconds / BLOCK_BYTES
    )
    behind = meshjoin.service_rate(rest, disk, best_buffer_bytes(sizes, disk))
    share = cmeshjoin.cached_share(cached, sizes.master_rows, setting.data.skew) if cached else 0.0
    return Served(behind / (1 - share), share, cached)


def serve(scaled: Scaled) -> Served:
    """What the join does, once warmed up by some rounds over the master, in as many more."""
    machine = _machine(scaled)
    clock = machine.clock
    with closing(machine.device), scaled.operator(machine) as operator:
        portions = _portions(scaled)
        if scaled.setting.algorithm == "inlj":
            for _ in operator.push(next(portions).slice(0, _FEW_ROWS)):
                pass
            return Served(_FEW_ROWS / clock.now())
        round_pages = scaled.setting.data.rounds * scaled.master.pages
        before, began = _hand_over(operator, portions, round_pages), clock.now()
        after = _hand_over(operator, portions, 2 * round_pages)
    rows = after["rows_in"] - before["rows_in"]
    return Served(
        rows_per_second=rows / (clock.now() - began),
        hit_share=(after.get("front_hits", 0) - before.get("front_hits", 0)) / rows,
        cached_rows=after.get("front_keys", 0) * scaled.world.scale,
        rows_waiting=after["rows_waiting"] * scaled.world.scale,
    )


def _machine(scaled: Scaled) -> Machine:
    if scaled.world.is_real:
        return real_machine()
    clock = SimulatedClock()
    return Machine(clock, SimulatedDisk(clock, scaled.disk))


def _portions(scaled: Scaled) -> Iterator[pa.RecordBatch]:
    for batch in scaled.setting.data.stream(scaled.world):
        for first in range(0, batch.num_rows, _PORTION_ROWS):
            yield batch.slice(first, _PORTION_ROWS)


def _hand_over(operator: object, portions: Iterator[pa.RecordBatch], pages: int) -> dict[str, float]:
    """Hand over rows until this many pages have been read; returns the counters."""
    metrics: dict[str, float] = operator.metrics()  # type: ignore[attr-defined]
    while metrics["pages_read"] < pages:
        for _ in operator.push(next(portions)):  # type: ignore[attr-defined]
            pass
        metrics = operator.metrics()  # type: ignore[attr-defined]
    return metrics
