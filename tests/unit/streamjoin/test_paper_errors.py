"""The errors of the DINER paper, and their consequences; D-E1 to D-E3 are in `test_joined_blocks`."""

from typing import Any

import numpy as np
import pytest

from adjoin.streamjoin.base.three_regions import LOWER, MIDDLE, UPPER, RegionStatistics, ThreeRegions
from tests.unit.streamjoin.inputs import LEFT, RIGHT, Input, expected, pairs_of, small


def regions(joins: list[int], tuples: list[int]) -> RegionStatistics:
    return RegionStatistics(10, 20, np.array(joins), np.array(tuples))


@pytest.mark.parametrize(
    ("joins", "tuples", "region"),
    [
        ([5, 1, 9], [10, 10, 10], LOWER),
        ([9, 9, 1], [10, 10, 10], MIDDLE),
        ([3, 2, 9], [30, 10, 10], UPPER),
        ([4, 4, 4], [10, 10, 10], UPPER),
        ([9, 4, 4], [10, 10, 10], LOWER),
    ],
)
def test_the_least_useful_region_is_flushed(joins, tuples, region):
    """D-E4: the one with the fewest joins per tuple, not the second highest; ties have an order."""
    assert regions(joins, tuples).least_useful == region


def test_a_region_without_tuples_is_never_chosen():
    """D-E9: joins per tuple would be zero divided by zero."""
    with np.errstate(all="raise"):
        assert regions([0, 0, 7], [0, 0, 10]).least_useful == MIDDLE
        assert regions([0, 3, 7], [0, 10, 10]).least_useful == LOWER


def test_both_tuples_of_a_match_are_credited_to_their_own_regions():
    """D-E6, D-E10: a row can match tuples in other regions than its own."""
    policy = ThreeRegions()
    for side in (0, 1):
        policy.regions[side][0].lower, policy.regions[side][0].upper = 10, 20
    policy.joined(0, np.array([9, 9, 15, 21]))
    policy.joined(1, np.array([10, 11, 20, 25]))
    assert policy.regions[0][0].joins[[LOWER, MIDDLE, UPPER]].tolist() == [2, 1, 1]
    assert policy.regions[1][0].joins[[LOWER, MIDDLE, UPPER]].tolist() == [1, 1, 2]


def test_the_join_credits_every_match_to_both_inputs():
    left, right = Input(LEFT, 1, 100), Input(RIGHT, 2, 100)
    with small("diner", within=2) as join:
        found = [*join.push("left", left.draw(50)), *join.push("right", right.draw(60))]
        assert isinstance(join._policy, ThreeRegions)
        credited = [int(regions[0].joins.sum()) for regions in join._policy.regions]
    assert credited == [sum(batch.num_rows for batch in found)] * 2
    assert credited[0] > 0


def test_tuples_in_memory_meet_those_on_disk_at_the_end():
    """D-E7: tuples in memory when both inputs end have not met those flushed before they arrived."""
    left, right = Input(LEFT, 1, 4_000), Input(RIGHT, 2, 4_000)
    with small("diner") as join:
        found = [batch for _ in range(8) for batch in join.push("left", left.draw(400))]
        assert join.metrics()["rows_on_disk"] > 0
        found += list(join.push("right", right.draw(50)))
        assert join.metrics()["rows_in_memory"] > 50
        found += list(join.finish())
    assert pairs_of(found) == expected(left.table, right.table, "l.k = r.k")
    assert len(found) > 0


def test_no_two_moments_are_the_same():
    """D-E8: a pair would be lost or repeated if a tuple left at the moment at which the other arrives."""
    left, right = Input(LEFT, 1, 300), Input(RIGHT, 2, 300)
    with small("diner") as join:
        for _ in range(6):
            for side, rows in (("left", left), ("right", right)):
                for batch in join.push(side, rows.draw(400)):
                    del batch
        moments: list[int] = []
        for tuples, blocks in zip(join._storage.inputs, join._storage.blocks, strict=True):
            place, _, _ = tuples.index.places(tuples.index.all())
            moments += tuples.arrived_at(place).tolist()
            for number in range(len(blocks)):
                block, _ = blocks.read(number)
                moments += [*block.arrived.tolist(), int(block.left[0])]
                assert (block.arrived < block.left).all()
    assert len(moments) > 4_000
    assert len(set(moments)) == len(moments)


@pytest.mark.parametrize("ended", ["left", "right"])
def test_rows_are_taken_while_either_input_continues(ended):
    """D-E5: the arriving phase continues with one input; D-E14: its tuples leave first."""
    left, right = Input(LEFT, 1, 5_000), Input(RIGHT, 2, 5_000)
    sides: dict[str, Any] = {"left": left, "right": right}
    other = "right" if ended == "left" else "left"
    with small("diner") as join:
        found = list(join.push(ended, sides[ended].draw(600)))
        join.end(ended)
        for _ in range(9):
            found += list(join.push(other, sides[other].draw(400)))
            join.check_invariants()
        assert join.metrics()["results_online"] == len(expected(left.table, right.table, "l.k = r.k"))
        found += list(join.finish())
    assert pairs_of(found) == expected(left.table, right.table, "l.k = r.k")
