"""The grid of blocks: every pair once, whenever work stops and blocks are added; the errors of the paper."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from adjoin.streamjoin.condition import LEFT, RIGHT
from adjoin.streamjoin.grid import Grid

more = st.tuples(st.integers(0, 4), st.integers(0, 4))


class Joined:
    """A grid that notes every pair it was told to join."""

    def __init__(self) -> None:
        self.grid = Grid()
        self.blocks = [0, 0]
        self.pairs: Counter[tuple[int, int]] = Counter()

    def work(self, most_outer: int, steps: int) -> bool:
        """Step by step; whether nothing is left after so many."""
        lengths = self.blocks[LEFT], self.blocks[RIGHT]
        for _ in range(steps):
            step = self.grid.next_step(lengths, most_outer)
            if step is None:
                return True
            for outer in range(step.outer_begin, step.outer_end):
                pair = (outer, step.inner_block) if step.outer == LEFT else (step.inner_block, outer)
                self.pairs[pair] += 1
            self.grid.finished()
            self.grid.check_invariants(lengths)
        return False


@given(rounds=st.lists(st.tuples(more, st.integers(1, 6)), max_size=12), most_outer=st.integers(1, 5))
def test_every_pair_is_joined_exactly_once(rounds, most_outer):
    joined = Joined()
    for (left, right), steps in rounds:
        joined.blocks[LEFT] += left
        joined.blocks[RIGHT] += right
        joined.work(most_outer, steps)
    while not joined.work(most_outer, 3):
        continue
    everything = {(a, b) for a in range(joined.blocks[LEFT]) for b in range(joined.blocks[RIGHT])}
    assert set(joined.pairs) == everything
    assert set(joined.pairs.values()) <= {1}


def test_work_ends_after_one_inner_block_when_that_is_enough():
    joined = Joined()
    joined.blocks = [7, 9]
    joined.work(3, 1)
    assert sum(joined.pairs.values()) == 3
    assert len({inner for _, inner in joined.pairs}) == 1


def test_blocks_of_the_inner_side_alone_are_joined_too():
    """D-E2: a role is changed where only the inner side has gained blocks; the paper's loop runs for ever."""
    joined = Joined()
    joined.blocks = [2, 2]
    assert joined.work(9, 99)
    joined.blocks = [2, 5]
    assert joined.work(9, 99)
    assert len(joined.pairs) == 10


def test_the_last_inner_block_is_joined():
    """D-E1: the paper's comparison leaves it out, and never comes to an end."""
    joined = Joined()
    joined.blocks = [1, 1]
    assert joined.work(1, 99)
    assert joined.pairs == {(0, 0): 1}


@given(st.lists(st.tuples(more, st.integers(1, 4)), max_size=8), st.integers(0, 2**32 - 1))
def test_a_grid_can_be_written_down_at_any_time(rounds, seed):
    random = np.random.default_rng(seed)
    joined = Joined()
    for (left, right), steps in rounds:
        joined.blocks[LEFT] += left
        joined.blocks[RIGHT] += right
        joined.work(int(random.integers(1, 4)), steps)
        joined.grid = Grid.from_json(joined.grid.to_json())
    assert joined.work(2, 10_000)
    assert len(joined.pairs) == joined.blocks[LEFT] * joined.blocks[RIGHT]
    assert set(joined.pairs.values()) <= {1}
