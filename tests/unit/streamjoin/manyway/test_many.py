"""Joins of many streams: every result exactly once, whatever arrives when, in memory never exceeded."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.streamjoin.manyway.relations import JOINS, Tree


@st.composite
def trees(draw, most=6):
    size = draw(st.integers(2, most))
    parents = [draw(st.integers(0, child - 1)) for child in range(1, size)]
    kinds = [draw(st.sampled_from(["equality", "equality", "band", "range"])) for _ in parents]
    wide = any(kind != "equality" for kind in kinds)
    keys = draw(st.sampled_from([60, 500] if wide else [12, 60, 500]))
    return Tree(parents, kinds, keys, draw(st.integers(0, 99)))


def arrivals(most_rows):
    """Rows of one relation, a pause, the end of one, in any order."""
    return st.lists(
        st.one_of(
            st.tuples(st.just("rows"), st.integers(0, 99), st.integers(0, most_rows)),
            st.tuples(st.just("rows"), st.integers(0, 99), st.integers(0, most_rows)),
            st.tuples(st.just("pause"), st.just(0), st.sampled_from([0.01, 0.3, 1.0])),
            st.tuples(st.just("end"), st.integers(0, 99), st.just(0)),
        ),
        max_size=16,
    )


@pytest.mark.parametrize("is_restored", [False, True])
@pytest.mark.parametrize("name", JOINS)
@given(tree=trees(), items=arrivals(120))
@settings(max_examples=25)
def test_every_result_comes_exactly_once(name, is_restored, tree, items):
    """Also where the operator is written down after every batch, and another one goes on."""
    found: list[Any] = []
    join = tree.join(name)
    ended = set()
    for what, number, amount in items:
        relation = number % tree.size
        if what == "end":
            join.end(tree.names[relation])
            ended.add(relation)
        elif what == "pause":
            found += list(join.idle(amount))
        elif relation not in ended:
            found += list(join.push(tree.names[relation], tree.draw(relation, amount)))
        join.check_invariants()
        if is_restored:
            before, join = join, tree.join(name)
            join.restore(before.snapshot())
            before.close()
            join.check_invariants()
    found += list(join.finish())
    metrics = join.metrics()
    join.close()
    assert tree.found(found) == tree.expected()
    assert metrics["peak_bytes"] <= metrics["memory_bytes"]
    results = sum(metrics[f"results_{phase}"] for phase in ("online", "reactive", "cleanup"))
    assert results == metrics["rows_out"] == sum(batch.num_rows for batch in found)


CHAIN, STAR, SNOWFLAKE = [0, 1, 2], [0, 0, 0], [0, 0, 1, 1, 2]


@pytest.mark.parametrize("name", JOINS)
@pytest.mark.parametrize("parents", [[0], CHAIN, STAR, SNOWFLAKE], ids=["two", "chain", "star", "snowflake"])
def test_results_come_in_all_phases(name, parents):
    """But for six relations in a reactive phase: blocks of all of them that have a result are rare."""
    tree = Tree(parents, ["equality"] * len(parents), 1_500, 1)
    found: list[Any] = []
    with tree.join(name) as join:
        for _ in range(16):
            for relation in range(tree.size):
                found += list(join.push(tree.names[relation], tree.draw(relation, 150)))
                join.check_invariants()
            found += list(join.idle(2.0))
            join.check_invariants()
        found += list(join.finish())
        metrics = join.metrics()
    assert tree.found(found) == tree.expected()
    assert metrics["results_online"] > 0
    if parents != SNOWFLAKE:
        assert (metrics["results_reactive"] > 0) == (name == "miner")
    assert metrics["results_cleanup"] > 0
    assert metrics["blocks_flushed"] > 20
