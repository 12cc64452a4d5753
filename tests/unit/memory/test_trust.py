"""What was verified in a page file is trusted until somebody writes to the file."""

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from adjoin.memory import mapped_file
from adjoin.memory.page_memory import PageFile, PageMemory
from adjoin.memory.trust import SlotTrust

SLOTS = np.arange(8, dtype=np.int32)
MOST_BYTES = 1 << 20


def next_tick() -> None:
    """Wait until the clock by which changes of files are noted has moved on."""
    now = time.time_ns()
    while time.clock_gettime_ns(5) <= now:
        time.sleep(0.001)


def trust_in(memory: PageMemory) -> SlotTrust:
    arena: Any = SimpleNamespace(memory=memory, all_slots=len(SLOTS))
    return SlotTrust(arena, SimpleNamespace())  # type: ignore[arg-type]


def doubted(trust: SlotTrust, slots: np.ndarray = SLOTS) -> list[int]:
    return trust._doubtful(slots)[0].tolist()


def verify(trust: SlotTrust, slots: np.ndarray) -> None:
    next_tick()
    doubtful, state = trust._doubtful(slots)
    assert state
    trust._verified[doubtful] = state


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pages"


def use(pages: PageFile) -> SlotTrust:
    """Begin to use the file, as an operator does; what is mapped once stays so."""
    if pages.recall("key") is None:
        pages.array("notes", 100, np.int8)[:] = 1
    return trust_in(pages)


def test_private_memory_is_never_doubted():
    def expected(slots: np.ndarray) -> Any:
        raise AssertionError("nothing is to be verified")

    assert trust_in(PageMemory()).find_damaged(SLOTS, expected) is None


def test_every_slot_is_doubted_until_it_was_verified(path):
    with PageFile(path, MOST_BYTES) as pages:
        trust = use(pages)
        verify(trust, SLOTS[:3])
        assert doubted(trust) == [3, 4, 5, 6, 7]
        trust.doubt(SLOTS[1:2])
        assert doubted(trust, SLOTS[:3]) == [1]


def test_the_next_user_in_the_process_trusts_what_the_last_one_verified(path):
    with PageFile(path, MOST_BYTES) as pages:
        use(pages)
        pages.leave({})
        verify(use(pages), SLOTS[2:5])
        pages.leave({})
        assert doubted(use(pages)) == [0, 1, 5, 6, 7]


@pytest.mark.parametrize("offset", [0, 4096])
def test_a_write_between_two_users_ends_all_trust(path, offset):
    with PageFile(path, MOST_BYTES) as pages:
        verify(use(pages), SLOTS)
        pages.leave({})
        with open(path, "r+b") as file:
            file.seek(offset)
            same = file.read(1)
            file.seek(offset)
            file.write(same)
        next_tick()
        assert doubted(use(pages)) == SLOTS.tolist()


def test_memory_that_was_emptied_is_not_trusted(path):
    with PageFile(path, MOST_BYTES) as pages:
        verify(use(pages), SLOTS)
        pages.empty()
        assert doubted(trust_in(pages)) == SLOTS.tolist()


def test_a_write_while_the_file_is_in_use_ends_all_trust(path):
    with PageFile(path, MOST_BYTES) as pages:
        trust = use(pages)
        verify(trust, SLOTS)
        assert doubted(trust) == []
        next_tick()
        os.pwrite(os.open(path, os.O_RDWR), b"x", 50_000)
        assert doubted(trust) == SLOTS.tolist()


def test_nothing_is_trusted_in_the_tick_of_a_change(path):
    with PageFile(path, MOST_BYTES) as pages:
        trust = use(pages)
        verify(trust, SLOTS)
        for _ in range(50):
            next_tick()
            os.utime(path)
            doubtful, state = trust._doubtful(SLOTS)
            if state == 0:
                assert doubtful.tolist() == SLOTS.tolist()
                break
        else:
            pytest.fail("no change was seen within its tick")


@pytest.mark.parametrize(
    ("time_ns", "rounding_ns"), [(1_700_000_000_123_456_789, 0), (1_700_000_000 * 10**9, 2 * 10**9)]
)
def test_times_in_whole_seconds_are_believed_two_seconds_later(time_ns, rounding_ns):
    assert mapped_file._rounding_ns(time_ns) == rounding_ns
