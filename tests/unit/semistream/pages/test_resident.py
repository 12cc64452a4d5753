"""Pages in memory under random actions, against a dictionary of all pages of the master."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin import Master
from adjoin.master.device import SimulatedDisk
from adjoin.memory.arena import BLOCK_BYTES
from adjoin.memory.budget import MemoryBudget
from adjoin.memory.page_columns import Places
from adjoin.operators.clock import SimulatedClock
from adjoin.semistream.pages.cache import ABSENT
from adjoin.semistream.pages.read_ahead import read_in_waves
from adjoin.semistream.pages.resident import ResidentPages, _Slack
from adjoin.semistream.pages.split import least_memory
from tests.unit.semistream.shop import DISK, build, products

Page = list[tuple[int, str]]
ROWS = 3_000


def pages_of(master: Master) -> dict[int, Page]:
    """What is in every page, read with pyarrow from the data files."""
    index = master.load_index()
    held = {}
    for page, (file, block) in enumerate(zip(index.file.tolist(), index.block.tolist(), strict=True)):
        path = master.files[file].path
        with pa.OSFile(path) as source:
            schema = pa.ipc.open_file(source).schema
            source.seek(block * BLOCK_BYTES)
            batch = pa.ipc.read_record_batch(pa.ipc.read_message(source), schema)
        held[page] = list(zip(batch["id"].to_pylist(), batch["name"].to_pylist(), strict=True))
    assert sum(map(len, held.values())) == master.rows
    return held


class Held:
    """Resident pages, and the dictionary that they are compared with."""

    def __init__(self, master: Master, room_bytes: int) -> None:
        self.budget = MemoryBudget(least_memory(master) + room_bytes)
        device = SimulatedDisk(SimulatedClock(), DISK)
        self.resident = ResidentPages(master, ["id", "name"], self.budget, device, 0.5)
        self.pages = pages_of(master)

    def rows_in(self, slot: int) -> Page:
        """The rows of the page in a slot, gathered as a join does it."""
        columns = self.resident.columns
        rows = np.arange(columns.rows[slot], dtype=np.int32)
        places = Places(np.full(len(rows), slot, np.int32), rows)
        taken = [columns.take(self.resident.column(name), places).to_pylist() for name in ("id", "name")]
        return list(zip(*taken, strict=True))

    def read(self, wanted: np.ndarray) -> None:
        """Read the wanted pages that are not cached; every one arrives once and is what the master has."""
        self.resident.cache.credit(wanted)
        unread = wanted[self.resident.cache.slot_of(wanted) == ABSENT]
        arrived: list[int] = []
        for wave in read_in_waves(self.resident, unread, 20):
            for page, slot in zip(unread[wave.chosen].tolist(), wave.slots.tolist(), strict=True):
                assert self.rows_in(slot) == self.pages[page]
                arrived.append(page)
        assert sorted(arrived) == sorted(unread.tolist())

    def check(self) -> None:
        """What is cached is what the master has, and the budget holds."""
        self.resident.check_invariants()
        assert self.budget.used_bytes <= self.budget.peak_bytes <= self.budget.total_bytes
        cached = self.resident.cache.snapshot()
        assert len(set(cached.pages.tolist())) == len(cached.pages)
        for page, slot in zip(cached.pages.tolist(), cached.slots.tolist(), strict=True):
            assert self.rows_in(slot) == self.pages[page]

    @property
    def cached(self) -> set[int]:
        return set(self.resident.cache.pages().tolist())

    def first_keys(self) -> set[int]:
        """The cached pages by what stays the same across versions."""
        return {self.pages[page][0][0] for page in self.cached}


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Master]:
    with build(products(ROWS), tmp_path) as opened:
        yield opened


def changed(master: Master, keys: Any, txn: str) -> Master:
    """The next version, in which these products have other names."""
    names = [f"new {txn} {key:030d}" for key in keys]
    changes = pa.table({"id": pa.array(keys, pa.int64()), "name": names, "_op": ["upsert"] * len(names)})
    return master.apply(changes, txn=txn)


@pytest.mark.parametrize("room_bytes", [0, 60_000, 4_000_000])
@pytest.mark.parametrize("seed", range(3))
def test_cached_pages_are_those_that_were_read(master, seed, room_bytes):
    random = np.random.default_rng(seed)
    held = Held(master, room_bytes)
    count = len(held.pages)
    for step in range(25):
        action = random.choice(["read", "read", "spread", "make room", "fade", "replace"])
        if action == "read":
            held.read(np.unique(random.integers(0, len(held.pages), int(random.integers(1, 40)))))
        elif action == "spread":
            held.resident.spread()
        elif action == "make room":
            wanted = int(random.integers(0, held.budget.total_bytes))
            if held.resident.make_room(wanted):
                assert held.budget.free_bytes >= wanted
        elif action == "fade":
            held.resident.cache.fade()
        else:
            newer = changed(held.resident.master, random.integers(0, ROWS, 5) * 2, f"{step}")
            held.resident.replace(newer)
            held.pages = pages_of(newer)
            newer.close()
        held.check()
    assert count > 20
    held.resident.close(is_sound=True)


def test_pages_that_were_read_stay_where_there_is_room(master):
    held = Held(master, 4_000_000)
    held.resident.spread()
    held.read(np.arange(len(held.pages)))
    assert held.cached == set(held.pages)
    reads = held.resident.counts.pages_read
    held.read(np.arange(len(held.pages)))
    assert held.resident.counts.pages_read == reads
    held.resident.close(is_sound=True)


def test_room_is_made_by_evicting_the_least_useful_pages(master):
    held = Held(master, 4_000_000)
    held.resident.spread()
    every = np.arange(len(held.pages))
    held.read(every)
    useful = np.concatenate([every[:5], every[-5:]])  # neither the first slots nor the last
    held.resident.cache.credit(np.repeat(useful, 5))
    slot_cost = held.resident.split.slot_cost
    spare = (held.resident.arena.capacity - len(useful)) * slot_cost
    assert held.resident.make_room(held.budget.free_bytes + spare)
    held.check()
    assert held.cached == set(useful.tolist())
    held.resident.close(is_sound=True)


def test_frozen_and_pinned_pages_are_not_evicted(master):
    held = Held(master, 4_000_000)
    held.resident.spread()
    held.read(np.arange(10))
    before = held.cached
    wanted = held.budget.free_bytes + held.resident.arena.capacity * held.resident.split.slot_cost
    with held.resident.frozen():
        assert not held.resident.make_room(wanted)
        assert held.cached == before
    held.resident.pinned_slots = held.resident.arena.capacity
    assert not held.resident.make_room(held.budget.free_bytes + 1)
    assert held.cached == before
    held.resident.pinned_slots = 0
    assert held.resident.make_room(wanted)
    assert not held.cached
    held.resident.close(is_sound=True)


def test_pages_that_both_versions_have_stay(master):
    held = Held(master, 4_000_000)
    held.resident.spread()
    held.read(np.arange(len(held.pages)))
    before, reads = held.pages, held.resident.counts.pages_read
    newer = changed(master, [0, 2, ROWS], "first and middle")
    held.resident.replace(newer)
    held.pages = pages_of(newer)
    held.check()
    common = {page[0][0] for page in before.values()} & {
        page[0][0] for page in held.pages.values() if page in before.values()
    }
    assert held.first_keys() == common
    assert len(before) - 4 <= len(common) < len(before)
    assert held.resident.counts.pages_read == reads
    held.read(np.arange(len(held.pages)))
    assert held.resident.counts.pages_read - reads == len(held.pages) - len(common)
    held.resident.close(is_sound=True)
    newer.close()


def test_slack_is_what_was_free_at_the_fullest_moments_lately():
    slack = _Slack(1000)
    slack.observe(300)
    slack.observe(700)
    assert slack.bytes == 300
    slack.take(200)
    assert slack.bytes == 100
    assert _Slack(1000, *slack.to_json()).bytes == 100
    for _ in range(2 * _Slack._PERIOD):
        slack.observe(600)
        slack.take(0)
    assert slack.bytes == 600
