"""Which pairs of tuples have met already, against every pair looked at on its own."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from adjoin.kernels.types import Array
from adjoin.streamjoin.twoway.pair_join import have_not_met

NEVER = 2**62


@dataclass
class Lives:
    """Tuples with their keys, and the moments in which they came and left memory."""

    low: Array
    arrived: Array
    left: Array

    @classmethod
    def random(cls, chance: np.random.Generator, rows: int) -> "Lives":
        arrived = chance.integers(0, 30, rows)
        left = arrived + chance.integers(1, 12, rows)
        left[chance.random(rows) < 0.1] = NEVER
        return cls(chance.integers(0, 9, rows), arrived, left)


class Remembering:
    """Knows that pairs with certain keys have met on disk; notes what it was asked."""

    def __init__(self, keys: set[int] | None) -> None:
        self._keys = keys
        self.asked: tuple[Any, ...] = ()

    def met_tuples(self, *asked: Any) -> Array | None:
        self.asked = asked
        return None if self._keys is None else np.isin(asked[1], list(self._keys))


def were_together(some: Lives, at: int, others: Lives, other: int) -> bool:
    """Whether there was a moment in which both were in memory."""
    return any(
        some.arrived[at] <= moment < some.left[at] and others.arrived[other] <= moment < others.left[other]
        for moment in range(50)
    )


@pytest.mark.parametrize("seed", range(6))
def test_pairs_that_were_in_memory_together_have_met(seed):
    chance = np.random.default_rng(seed)
    some, others = Lives.random(chance, 20), Lives.random(chance, 25)
    at, others_at = chance.integers(0, 20, 150), chance.integers(0, 25, 150)
    found = have_not_met(0, some, at, others, others_at, None)
    wanted = [
        not were_together(some, *pair[:1], others, *pair[1:]) for pair in zip(at, others_at, strict=True)
    ]
    assert found.tolist() == wanted


@pytest.mark.parametrize(
    ("one", "other", "is_new"),
    [
        ((0, 5), (5, 9), True),  # left in the moment in which the other came
        ((0, 6), (5, 9), False),
        ((5, 9), (0, 5), True),
        ((5, 9), (0, 6), False),
        ((3, 4), (0, 9), False),  # came and left while the other was there
        ((0, NEVER), (8, 9), False),
    ],
)
def test_the_moment_of_leaving_is_not_in_memory(one, other, is_new):
    some, others = (
        Lives(np.zeros(1, int), *(np.array([moment]) for moment in life)) for life in (one, other)
    )
    first = np.zeros(1, int)
    assert have_not_met(1, some, first, others, first, None).tolist() == [is_new]


@pytest.mark.parametrize("keys", [None, set(), {1, 4, 7}])
def test_pairs_that_met_on_disk_are_left_out(keys):
    chance = np.random.default_rng(9)
    some, others = Lives.random(chance, 20), Lives.random(chance, 25)
    at, others_at = chance.integers(0, 20, 150), chance.integers(0, 25, 150)
    past: Any = Remembering(keys)
    found = have_not_met(1, some, at, others, others_at, past)
    in_memory = have_not_met(1, some, at, others, others_at, None)
    assert found.tolist() == (in_memory & ~np.isin(some.low[at], list(keys or ()))).tolist()
    side, low, later, left, others_left = past.asked
    assert side == 1
    assert low.tolist() == some.low[at].tolist()
    assert later.tolist() == np.maximum(some.arrived[at], others.arrived[others_at]).tolist()
    assert left.tolist() == some.left[at].tolist()
    assert others_left.tolist() == others.left[others_at].tolist()
