"""MINER: what the paper says about it, with its errors corrected."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin import DINER, MINER, Pause
from adjoin.master.device import Cost
from adjoin.operators.clock import SimulatedClock
from adjoin.streamjoin.base.three_regions import ThreeRegions
from adjoin.streamjoin.manyway.graph import JoinGraph
from adjoin.streamjoin.manyway.matching import ProbeOrder
from tests.unit.streamjoin.manyway.relations import Tree, drain

CHAIN = [0, 1, 2]


def chain(keys=300, kinds="equality"):
    return Tree(CHAIN, [kinds] * 3, keys, 1)


def test_the_most_selective_condition_is_probed_first():
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    graph = JoinGraph(
        dict.fromkeys(("r1", "r2", "r3", "r4"), schema), ["r1.a = r2.a", "r2.b = r3.b", "r3.a = r4.a"]
    )
    order = ProbeOrder(graph)
    for edge, matches in zip(graph.edges, (20, 10, 30), strict=True):
        order.note(edge, 100, 100, matches)
    asked = [1]
    while len(asked) < 4:  # as in the paper: a row of r2 probes r3, then r1, then r4
        edge, bound = order.next(asked)
        assert bound in asked
        asked.append(edge.other(bound))
    assert asked == [1, 2, 0, 3]


def test_selectivities_fade_slowly():
    """D-E12: zeroed at every flush, they would say nothing for a while."""
    tree = chain()
    with tree.join("miner") as join:
        for _ in range(12):
            for relation in range(4):
                drain(join.push(tree.names[relation], tree.draw(relation, 150)))
        assert join.metrics()["blocks_flushed"] > 20
        assert all(0.3 / 300 < each < 3 / 300 for each in join.metrics()["selectivities"].values())


def test_a_row_stops_at_the_first_relation_without_a_match():
    tree = chain()
    with tree.join("miner") as join:
        for relation in (1, 2, 3):
            drain(join.push(tree.names[relation], tree.draw(relation, 100)))
        before = join._tuple_join.order.to_json()
        # Rows of r0 probe r1, those with a match r2, and those with another match r3.
        drain(join.push("r0", tree.draw(0, 100)))
        after = join._tuple_join.order.to_json()
        pairs = [now[0] - known[0] for now, known in zip(after, before, strict=True)]
    assert pairs[0] > pairs[1] > pairs[2] >= 0


def test_nothing_is_probed_while_a_relation_has_no_tuples():
    tree = chain()
    with tree.join("miner") as join:
        for relation in (1, 2, 0):
            assert drain(join.push(tree.names[relation], tree.draw(relation, 100))) == 0
        assert set(join.metrics()["selectivities"].values()) == {0.0}


def test_regions_count_only_final_results():
    """Footnote 2 of the paper: partial results say nothing about how useful a tuple is."""
    tree = chain(keys=20)
    with tree.join("miner") as join:
        policy = join._policy
        assert isinstance(policy, ThreeRegions)
        for relation in (0, 1, 2):
            assert list(join.push(tree.names[relation], tree.draw(relation, 60))) == []
        assert all(count == 0 for of_input in policy.regions for each in of_input for count in each.joins)
        found = sum(batch.num_rows for batch in join.push("r3", tree.draw(3, 60)))
        credited = [int(each.joins.sum()) for of_input in policy.regions for each in of_input]
    assert found > 0
    assert credited == [found] * 6


def test_the_largest_relation_loses_tuples_and_all_its_indexes_agree():
    tree = chain(keys=2_000)
    with tree.join("miner", memory="500KB") as join:
        for relation in (0, 2, 3):
            drain(join.push(tree.names[relation], tree.draw(relation, 200)))
        drain(join.push("r1", tree.draw(1, 4_000)))
        join.check_invariants()  # every index of a relation has the same places
        on_disk = [blocks.rows for blocks in join._storage.blocks]
        assert on_disk[1] > 1_000
        assert on_disk[0] == on_disk[2] == on_disk[3] == 0


def test_the_last_input_that_continues_loses_its_tuples_first():
    """D-E14, for many inputs: although another one has more of them."""
    tree = chain(keys=5_000)
    with tree.join("miner", memory="500KB") as join:
        for relation, rows in ((0, 500), (1, 100), (2, 100)):
            drain(join.push(tree.names[relation], tree.draw(relation, rows)))
            join.end(tree.names[relation])
        assert join.metrics()["blocks_flushed"] == 0
        found = [batch for _ in range(60) for batch in join.push("r3", tree.draw(3, 50))]
        assert join._storage.blocks[3].rows > 0
        assert [blocks.rows for blocks in join._storage.blocks[:3]] == [0, 0, 0]
        found += list(join.finish())
    assert tree.found(found) == tree.expected()


def same_room_for_tuples(tree, memory, sizes):
    """The memory that MINER needs, since it sets more aside."""

    def set_aside(join):
        with join:
            sizes = join._storage.sizes
            return sizes.reactive_bytes + sizes.all_notes_bytes + sizes.work_bytes

    left, right = tree.schema(0), tree.schema(1)
    room = memory - set_aside(DINER(left, right, {"k1": "k0"}, memory, **sizes))
    more = 2 * memory
    for _ in range(9):
        more = room + set_aside(MINER(tree.schemas, tree.on, more, **sizes))
    return more


@pytest.mark.parametrize("kind", ["equality", "band"])
def test_two_inputs_behave_as_with_diner(kind):
    tree = Tree([0], [kind], 600, 3)
    sizes: dict[str, Any] = {"block_bytes": 4096, "max_outer": 3, "disk": Cost(8e-3, 4e-5)}
    left, right = tree.schema(0), tree.schema(1)
    memory = same_room_for_tuples(tree, 250_000, sizes)
    batches = [(side, tree.draw(side, 200)) for _ in range(15) for side in (0, 1)]
    within: dict[str, Any] = {} if kind == "equality" else {"within": 2}
    results = []
    for join, names in (
        (
            DINER(left, right, {"k1": "k0"}, 250_000, clock=SimulatedClock(), **within, **sizes),
            ("left", "right"),
        ),
        (MINER(tree.schemas, tree.on, memory, clock=SimulatedClock(), **sizes), ("r0", "r1")),
    ):
        with join:
            items: list[Any] = []
            for side, batch in batches:
                items += [(names[side], batch), Pause(0.1 * side)]
            total = sum(batch.num_rows for batch in join.run(items))
            metrics = join.metrics()
        results.append((total, metrics["results_online"], metrics["results_reactive"]))
    assert results[0][0] == results[1][0] == len(tree.expected())
    assert results[1][1] == pytest.approx(results[0][1], rel=0.1)
    assert min(results[0][2], results[1][2]) > 0


@pytest.mark.parametrize(("most_new", "is_tight"), [(0, True), (50, True), (50, False)])
def test_a_reactive_phase_hands_over_after_one_block(most_new, is_tight):
    """Also the first one, for which tuples must leave."""
    tree = chain(keys=400)
    with tree.join("miner", max_new=most_new, is_tight=is_tight) as join:
        for _ in range(14):
            for relation in range(4):
                drain(join.push(tree.names[relation], tree.draw(relation, 120)))
        rows, real_sleep = tree.draw(0, 2_000), join._clock.sleep

        def sleep(seconds):  # while a block is read, ten rows arrive
            nonlocal rows
            real_sleep(seconds)
            if seconds > 1e-3 and rows.num_rows:
                assert join.offer("r0", rows.slice(0, 10))
                rows = rows.slice(10)

        assert join.offer("r0", rows.slice(0, 0))  # from now on there is room for rows that come meanwhile
        assert list(join.idle(0)) == []
        join._clock.sleep = sleep
        drain(join.idle(1.0))
        assert join.metrics()["reactive_phases"] > 3
        assert most_new < join.metrics()["input_buffer_rows_at_handover_max"] <= most_new + 10


def test_metrics_report_index_bytes():
    tree = chain()
    with tree.join("miner") as join:
        drain(join.push("r1", tree.draw(1, 100)))
        rows = join.metrics()["rows_in_memory"]
        assert join.metrics()["index_bytes"] == rows * 2 * 17
        assert rows == 100 - np.count_nonzero(
            [
                any(batch[name][row].as_py() is None for name in ("k0", "k2"))
                for batch in tree.batches[1]
                for row in range(100)
            ]
        )
