"""The odometer: every combination of blocks exactly once, however the disk parts grow and whoever is outer."""

import itertools

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from adjoin.streamjoin.manyway.box import Box
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
            st.tuples(st.just("skip"), st.integers(0, 2)),
        ),
        max_size=20,
    ),
)
def test_every_combination_exactly_once(parents, most_outer, actions):
    graph = graph_of(parents)
    size = len(parents) + 1
    box, blocks = Box(), [0] * size
    joined: set[tuple[int, ...]] = set()

    def note(step, wheel=None):
        ranges = {step.outer: range(step.outer_begin, step.outer_end)}
        for number, (relation, block) in enumerate(step.inner):
            is_free = wheel is not None and number > wheel
            ranges[relation] = range(box.joined[relation]) if is_free else range(block, block + 1)
        combinations = set(itertools.product(*(ranges[relation] for relation in range(size))))
        assert not combinations & joined
        joined.update(combinations)

    def check():
        box.check_invariants(blocks)
        every = list(itertools.product(*map(range, blocks)))
        arrays = [np.array([each[relation] for each in every], np.int64) for relation in range(size)]
        said = box.has_joined(arrays)
        assert {each for each, is_joined in zip(every, said.tolist(), strict=True) if is_joined} == joined

    for what, amount in actions:
        if what == "add":
            blocks[amount % size] += 1
        elif what == "skip":
            # A wheel can be skipped while those behind it are at their beginning.
            step = box.next_step(graph, blocks, most_outer)
            wheel = min(amount, size - 2)
            if step is not None and not any(block for _, block in step.inner[wheel + 1 :]):
                note(step, wheel)
                box.finished(wheel)
        else:
            for _ in range(amount):
                step = box.next_step(graph, blocks, most_outer)
                if step is None:
                    break
                note(step)
                box.finished()
                check()
        check()
        box = Box.from_json(box.to_json())
    while (step := box.next_step(graph, blocks, most_outer)) is not None:
        note(step)
        box.finished()
    check()
    if all(blocks):
        assert len(joined) == np.prod(blocks)
