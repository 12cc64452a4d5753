"""The box and its odometer: every combination of blocks exactly once, however blocks are added."""

import itertools

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from adjoin.streamjoin.disk.joined_blocks import Box
from adjoin.streamjoin.manyway.graph import JoinGraph

SCHEMA = pa.schema([(f"k{number}", pa.int64()) for number in range(4)])


def graph_of(parents):
    relations = {f"r{number}": SCHEMA for number in range(len(parents) + 1)}
    return JoinGraph(
        relations, [f"r{parent}.k{child} = r{child}.k0" for child, parent in enumerate(parents, 1)]
    )


@given(
    parents=st.sampled_from([[0], [0, 0], [0, 1], [0, 1, 2], [0, 0, 1]]),
    most_outer=st.integers(1, 3),
    actions=st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 3)),
            st.tuples(st.just("work"), st.integers(1, 9)),
            st.tuples(st.just("turn"), st.integers(0, 2)),
        ),
        max_size=20,
    ),
)
def test_every_combination_exactly_once(parents, most_outer, actions):
    world = World(parents, most_outer)
    for what, amount in actions:
        if what == "add":
            world.blocks[amount % world.size] += 1
        elif what == "turn":
            world.turn(min(amount, world.size - 2))
        else:
            world.work(amount)
        world.check()
        world.box = Box.from_json(world.box.to_json())
    world.work(10**6)
    if all(world.blocks):
        assert len(world.joined) == np.prod(world.blocks)


def test_work_can_stop_after_one_inner_block():
    """D-E3: the return statement is missing in print."""
    world = World([0], most_outer=3)
    world.blocks = [7, 9]
    world.work(1)
    assert world.joined == {(0, 0), (1, 0), (2, 0)}


def test_blocks_of_the_inner_relation_alone_are_joined_too():
    """D-E2: roles are swapped if only the inner side has gained blocks; the paper loops forever."""
    world = World([0], most_outer=9)
    world.blocks = [2, 2]
    world.work(99)
    world.blocks = [2, 5]
    world.work(99)
    assert len(world.joined) == 10


def test_the_last_inner_block_is_joined():
    """D-E1: the paper's comparison omits it, and never terminates."""
    world = World([0], most_outer=1)
    world.blocks = [1, 1]
    world.work(99)
    assert world.joined == {(0, 0)}


def test_a_chunk_grows_until_something_of_it_is_joined():
    world = World([0, 1], most_outer=3)
    world.blocks = [1, 1, 4]
    assert world.next_step().outer_end == 1
    world.blocks = [2, 2, 4]
    assert world.next_step().outer_end == 2
    world.work(1)
    world.blocks = [3, 3, 4]
    assert world.next_step().outer_end == 2


class World:
    """A box, and the combinations that have been joined."""

    def __init__(self, parents, most_outer):
        self.graph = graph_of(parents)
        self.size = len(parents) + 1
        self.most_outer = most_outer
        self.box = Box()
        self.blocks = [0] * self.size
        self.joined: set[tuple[int, ...]] = set()

    def next_step(self):
        return self.box.next_step(self.blocks, lambda *_: self.most_outer, self._inner)

    def _inner(self, outer, joined):
        return [relation for relation, _ in self.graph.path(outer, joined)]

    def work(self, steps):
        while steps and (step := self.next_step()) is not None:
            self._note(step, self.size)
            self.box.finished()
            self.check()
            steps -= 1

    def turn(self, wheel):
        """A wheel can be turned on while those behind it are at their beginning."""
        step = self.next_step()
        if step is not None and not any(block for _, block in step.inner[wheel + 1 :]):
            self._note(step, wheel)
            self.box.finished(wheel)

    def _note(self, step, wheel):
        ranges = {step.outer: range(step.outer_begin, step.outer_end)}
        for number, (relation, block) in enumerate(step.inner):
            is_free = number > wheel
            ranges[relation] = range(self.box.joined[relation]) if is_free else range(block, block + 1)
        combinations = set(itertools.product(*(ranges[relation] for relation in range(self.size))))
        assert not combinations & self.joined
        self.joined |= combinations

    def check(self):
        self.box.check_invariants(self.blocks)
        every = list(itertools.product(*map(range, self.blocks)))
        arrays = [np.array([each[relation] for each in every], np.int64) for relation in range(self.size)]
        said = self.box.has_joined(arrays).tolist()
        assert {each for each, is_joined in zip(every, said, strict=True) if is_joined} == self.joined
