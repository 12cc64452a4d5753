"""The row queue under random actions, against a list of rows."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin.semistream.base.buffers import Rows
from adjoin.semistream.base.queue import RowQueue


def rows_of(first: int, count: int, arrived: float, is_range: bool = False) -> Rows:
    """Rows numbered from `first` on, with strings of several lengths."""
    numbers = np.arange(first, first + count)
    batch = pa.record_batch({"number": numbers, "note": ["n" * int(number % 7) for number in numbers]})
    low = numbers * 10
    return Rows(batch, arrived, None, low, low + 5 if is_range else low, numbers % 2 == 0, numbers + 1)


class Model:
    """A queue and what should be in it: for each row that has a number, who it is and what it waits for."""

    def __init__(self, is_range: bool) -> None:
        self.queue = RowQueue()
        self.is_range = is_range
        self.held: list[dict[str, Any]] = []
        self.next = 0

    def add(self, count: int, arrived: float, waits: np.ndarray) -> None:
        self.queue.add(rows_of(self.next, count, arrived, self.is_range), waits.astype(np.int32))
        for at in range(count):
            self.held.append({"row": self.next + at, "waits": int(waits[at]), "arrived": arrived})
        self.next += count

    @property
    def waiting(self) -> list[int]:
        return [number for number, row in enumerate(self.held) if row["waits"]]

    def leave(self, numbers: np.ndarray) -> None:
        for part, _, rows in list(self.queue.parts_of(numbers)):
            self.queue.leave(part, rows)
        for number in numbers:
            self.held[number]["waits"] = 0
        if not self.waiting:
            self.held = []

    def close_up(self) -> None:
        before = list(self.held)
        number = self.queue.close_up()
        self.held = [row for row in self.held if row["waits"]]
        assert [self.held[number[at]] for at, row in enumerate(before) if row["waits"]] == self.held
        assert self.queue.all_rows == self.queue.rows == len(self.held)
        assert not self.queue.is_loose

    def check(self, chance: np.random.Generator) -> None:
        self.queue.check_invariants()
        assert self.queue.all_rows == len(self.held)
        assert self.queue.rows == len(self.waiting)
        assert self.queue.is_loose == (len(self.held) - len(self.waiting) > len(self.held) / 8)
        some = np.flatnonzero(chance.random(len(self.held)) < 0.4)
        self.check_parts(some)
        for count in (0, 1, 5, len(self.held) + 1):
            assert self.queue.oldest(count).tolist() == self.waiting[:count]
        for number in some:
            assert self.queue.arrival_of(int(number)) == self.held[number]["arrived"]

    def check_parts(self, numbers: np.ndarray) -> None:
        """Every number is in one part, where its row is with all that is known of it."""
        met: list[int] = []
        for part, span, rows in self.queue.parts_of(numbers):
            met += numbers[span].tolist()
            for number, at in zip(numbers[span], rows, strict=True):
                row, known = self.held[number]["row"], part.rows
                assert part.left[at] == self.held[number]["waits"]
                assert known.batch["number"][int(at)].as_py() == row
                assert known.batch["note"][int(at)].as_py() == "n" * (row % 7)
                assert (known.low[at], known.high[at]) == (row * 10, row * 10 + 5 * self.is_range)
                assert known.matched[at] == (row % 2 == 0)
                assert known.sizes is not None
                assert known.sizes[at] == row + 1
        assert met == numbers.tolist()


@pytest.mark.parametrize("is_range", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_the_queue_is_a_list_from_which_rows_leave_in_any_order(seed, is_range):
    chance = np.random.default_rng(seed)
    model = Model(is_range)
    for step in range(60):
        action = chance.choice(["add", "add", "leave", "close_up", "clear"], p=[0.35, 0.2, 0.3, 0.13, 0.02])
        if action == "add":
            count = int(chance.choice([1, 3, 40]))
            model.add(count, float(step), chance.integers(1, 4, count))
        elif action == "leave":
            waiting = np.array(model.waiting, np.int64)
            model.leave(waiting[chance.random(len(waiting)) < chance.choice([0.1, 0.5, 1.0])])
        elif action == "close_up" and model.held:
            model.close_up()
        elif action == "clear":
            model.queue.clear()
            model.held = []
        model.check(chance)


def test_held_bytes_grow_with_rows_and_are_given_back():
    model = Model(is_range=False)
    assert model.queue.held_bytes == 0
    held = []
    for _ in range(5):
        model.add(40, 0.0, np.ones(40))
        held.append(model.queue.held_bytes)
    assert held == sorted(set(held))
    assert held[-1] >= 200 * (8 + 8 + 8 + 1 + 4)  # number, key, size, whether matched, what it waits for
    model.leave(np.arange(0, 180))
    assert model.queue.held_bytes == held[-1], "rows that only left are still there"
    model.close_up()
    assert model.queue.held_bytes < held[1]
    model.leave(np.arange(20))
    assert model.queue.held_bytes == 0


def test_many_batches_lie_in_few_parts():
    model = Model(is_range=False)
    for _ in range(300):
        model.add(1, 0.0, np.ones(1))
    parts = [part for part, _, _ in model.queue.parts_of(np.arange(300))]
    assert len(parts) <= 6  # each at least four times as long as the next


def test_rows_between_remembered_arrivals_never_count_as_younger():
    """Of many batches not every time of arrival is kept."""
    model = Model(is_range=False)
    for step in range(1_500):
        model.add(1, float(step), np.ones(1))
    told = np.array([model.queue.arrival_of(number) for number in range(1_500)])
    assert (told <= np.arange(1_500)).all()
    assert (np.diff(told) >= 0).all()
    assert (np.arange(1_500) - told).max() < 20
