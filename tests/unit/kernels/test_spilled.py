"""Joining rows with pages, against plain loops."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin.kernels.gather import SOUND
from adjoin.kernels.hashing import hash_bytes
from adjoin.kernels.spilled import (
    FILTER_WORDS,
    Loaded,
    Rows,
    Tasks,
    are_in_window,
    fill_filters,
    find_damaged_page,
    join_pages,
    leaving_tuples,
    mark_first,
    may_have_any,
    page_times,
    write_pieces,
)
from adjoin.memory.arena import Arena
from adjoin.memory.page_columns import PageColumns, columns_of
from adjoin.streamjoin.disk.spill_file import SpillFile

LEAST, GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


class Pages:
    """Pages of tuples with low, high and time, in an arena; each as a list of tuples, too."""

    def __init__(self, random: np.random.Generator, are_points: bool, extreme: bool = False) -> None:
        names = ["low", "time"] if are_points else ["low", "high", "time"]
        schema = pa.schema([pa.field(name, pa.int64(), False) for name in names])
        self.arena = Arena(40, 0, 4096, 0, 4096)
        self.columns = PageColumns(self.arena, columns_of(schema))
        self.tuples: list[list[tuple[int, int, int, int]]] = []
        self.messages, self.checksums = [], []
        count = 30
        marks = np.zeros(41, np.int64)
        for slot in range(count):
            rows = int(random.integers(1, 40))
            low = np.sort(random.integers(0, 200, rows))
            length = np.zeros(rows, np.int64) if are_points else random.integers(0, 60, rows)
            high = low + length
            if extreme:
                low[0], high[-1] = LEAST, low[-1] if are_points else GREATEST
                high[0] = low[0] if are_points else high[0]
            time = random.integers(0, 100, rows)
            arrays = [low, time] if are_points else [low, high, time]
            message = np.frombuffer(
                pa.RecordBatch.from_arrays(list(map(pa.array, arrays)), schema=schema).serialize(), np.uint8
            )
            base = int(self.arena.slot_base[slot])
            self.arena.bytes[base : base + len(message)] = message
            some = random.choice([0, 2, 4], rows).astype(np.uint8)
            marks[slot] = base + 4096 - rows
            self.arena.bytes[base + 4096 - rows : base + 4096] = some
            self.tuples.append(
                list(zip(low.tolist(), high.tolist(), time.tolist(), some.tolist(), strict=True))
            )
            self.messages.append(len(message))
            self.checksums.append(np.uint64(int(hash_bytes(message, 0, len(message))) & (1 << 64) - 1))
        offset = [self.columns.offset(column.buffers[1]) for column in columns_of(schema)]
        self.least = random.integers(0, 60, 41)
        nothing = np.empty(0, np.int32)
        self.loaded = Loaded(
            self.arena.bytes,
            self.arena.words,
            self.arena.slot_base,
            offset[0],
            nothing if are_points else offset[1],
            offset[-1],
            self.columns.rows,
            self.least,
            marks,
        )

    def find_damage(self, room: int = 4096) -> int:
        counts = np.array(list(map(len, self.tuples)), np.int32)
        return int(
            find_damaged_page(
                self.loaded,
                np.array(self.messages, np.int32),
                np.array(self.checksums, np.uint64),
                room,
                self.columns.wanted[0],
                self.columns.offsets,
                counts,
            )
        )


def in_window(time: int, other: int, window: Any) -> bool:
    has_low, low, more_low, has_high, high, more_high = window.tolist()
    above = not has_low or other >= time + low + more_low
    return bool(above and (not has_high or other <= time + high + more_high))


@pytest.mark.parametrize("extreme", [False, True])
@pytest.mark.parametrize("limit", [1, 7, 10_000])
@pytest.mark.parametrize("are_points", [False, True])
def test_join_pages(are_points, limit, extreme):
    random = np.random.default_rng(limit)
    pages = Pages(random, are_points, extreme)
    assert pages.find_damage() == SOUND
    low = np.sort(random.integers(0, 200, 100))
    high = low + random.integers(0, 9, 100)
    if extreme:
        low[0], high[-1] = LEAST, GREATEST
    time = random.integers(0, 100, 100)
    window = np.array([1, -20, 0, 1, 30, 0])
    begin = np.sort(random.integers(0, 100, 30))
    end = np.minimum(begin + random.integers(0, 60, 30), 100)
    slot = random.permutation(30).astype(np.int32)
    skips = np.uint8(2)
    found: list[tuple[int, int, int]] = []
    state = np.array([0, -1, -1])
    while state[0] < 30:
        parts = join_pages(
            Rows(low, high, time, window), Tasks(begin, end, slot, skips), pages.loaded, state, limit
        )
        assert len(parts[0]) <= limit
        found += zip(*(part.tolist() for part in parts), strict=True)
    wanted = [
        (row, page, at)
        for task, page in enumerate(slot.tolist())
        for row in range(int(begin[task]), int(end[task]))
        for at, (least, most, when, marks) in enumerate(pages.tuples[page])
        if least <= high[row]
        and most >= low[row]
        and not marks & 2
        and when >= pages.least[page]
        and in_window(int(time[row]), when, window)
    ]
    assert found == wanted
    assert len(found) > 40


@pytest.mark.parametrize("is_bounded", [False, True])
@pytest.mark.parametrize("has_time", [False, True])
def test_leaving_tuples(has_time, is_bounded):
    pages = Pages(np.random.default_rng(4), True)
    assert pages.find_damage() == SOUND
    slots, places = leaving_tuples(20, pages.loaded, has_time, is_bounded, 70, np.uint8(4))
    wanted = [
        (slot, at)
        for slot in range(20)
        for at, (_, _, time, marks) in enumerate(pages.tuples[slot])
        if not marks & 4 and (not has_time or (time >= pages.least[slot] and (not is_bounded or time < 70)))
    ]
    assert list(zip(slots.tolist(), places.tolist(), strict=True)) == wanted


def test_damaged_pages_are_found():
    pages = Pages(np.random.default_rng(4), False)
    assert pages.find_damage(room=max(pages.messages) - 1) == int(np.argmax(pages.messages))
    pages.arena.bytes[int(pages.arena.slot_base[7]) + 300] ^= 1
    assert pages.find_damage() == 7


WINDOWS = [
    (0, 0, 0, 0, 0, 0),
    (1, -5, 0, 0, 0, 0),
    (0, 0, 0, 1, 5, 0),
    (1, LEAST, LEAST, 1, GREATEST, GREATEST),
]


@pytest.mark.parametrize("window", [*WINDOWS, (1, 3, 0, 1, 9, 0), (1, GREATEST, 1, 0, 0, 0)])
def test_windows_are_exact_up_to_the_ends_of_int64(window):
    times = np.array([LEAST, LEAST + 1, -7, 0, 4, GREATEST - 3, GREATEST])
    owner, other = (array.ravel() for array in np.meshgrid(np.arange(7), np.arange(7)))
    found = are_in_window(times, owner.astype(np.int32), times[other], np.array(window))
    wanted = [
        in_window(int(times[one]), int(times[two]), np.array(window))
        for one, two in zip(owner, other, strict=True)
    ]
    assert found.tolist() == wanted


def test_mark_first():
    marks = np.array([0, 2, 4, 0], np.uint8)
    is_first = mark_first(marks, np.array([0, 1, 2, 0, 2]), np.uint8(2))
    assert is_first.tolist() == [True, False, True, False, False]
    assert marks.tolist() == [2, 2, 6, 0]


def test_page_times():
    time = np.array([5, 1, 9, 7, 7, -2, LEAST])
    least, most, median = page_times(np.array([0, 3, 4, 7]), time)
    assert (least.tolist(), most.tolist(), median.tolist()) == ([1, 7, LEAST], [9, 7, 7], [5, 7, -2])


def test_write_pieces():
    arena, file = np.arange(100, dtype=np.uint8), SpillFile()
    begin, place, length = np.array([0, 50]), np.array([10, 2]), np.array([4, 3])
    assert write_pieces(file.descriptor, arena, begin, place, length) == 2
    data = np.zeros(14, np.uint8)
    file.fill(0, data)
    assert data.tolist() == [0, 0, 50, 51, 52, 0, 0, 0, 0, 0, 0, 1, 2, 3]
    file.close()
    assert write_pieces(-1, arena, begin, place, length) == 0


def test_filters_have_no_false_negatives_and_few_false_positives():
    random = np.random.default_rng(5)
    keys = random.integers(LEAST, GREATEST, 80 * 200)
    filters = np.zeros((200, FILTER_WORDS), np.uint64)
    fill_filters(np.arange(0, 80 * 200 + 1, 80), keys, filters)
    rows = random.permutation(keys)
    one = np.arange(len(rows))
    pages = np.empty(len(rows), np.int64)
    pages[np.argsort(rows, kind="stable")] = np.argsort(keys, kind="stable") // 80
    assert may_have_any(one, one + 1, rows, filters[pages]).all()
    others = random.integers(LEAST, GREATEST, len(rows))
    assert 0 < may_have_any(one, one + 1, others, filters[pages]).mean() < 0.01
    assert not may_have_any(one, one, rows, filters[pages]).any()
    begin = np.zeros(200, np.int64)
    mixed = np.append(others[:3], keys[80 * 7])
    assert may_have_any(begin, begin + 4, mixed, filters)[7]
