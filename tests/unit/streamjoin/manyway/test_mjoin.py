"""MJoin: what leaves memory."""

import itertools

from adjoin.streamjoin.mjoin import CoordinatedFlush, RandomFlush
from tests.unit.streamjoin.manyway.relations import Tree, drain


def test_a_bucket_leaves_all_inputs_together():
    tree = Tree([0, 1, 2], ["equality"] * 3, 5_000, 1, has_one_key=True)
    with tree.join("mjoin") as join:
        policy = join._policy
        assert isinstance(policy, CoordinatedFlush)
        relations = itertools.cycle(range(4))
        while not join.metrics()["blocks_flushed"]:
            relation = next(relations)
            drain(join.push(tree.names[relation], tree.draw(relation, 100)))
        buckets = [
            {int(policy.partitions.of_key(blocks.reach_of(number)[0])) for number in range(len(blocks))}
            for blocks in join._blocks
        ]
        assert buckets[0] == buckets[1] == buckets[2] == buckets[3]
        assert 0 < len(buckets[0]) < policy.partitions.count / 2
        drain(join.finish())


def test_other_joins_lose_tuples_by_lot():
    tree = Tree([0, 1], ["equality"] * 2, 5_000, 1)
    with tree.join("mjoin", seed=3) as join:
        assert isinstance(join._policy, RandomFlush)
        for _ in range(6):
            for relation in range(3):
                drain(join.push(tree.names[relation], tree.draw(relation, 200)))
        blocks = join._blocks[0]
        whole = [number for number in range(len(blocks)) if blocks.rows_in(range(number, number + 1)) > 20]
        spans = [blocks.reach_of(number) for number in whole]
        assert len(spans) > 2
        # Neither the lowest nor the highest alone, nor those between: blocks have keys of all sizes, but for
        # those that left together with another one.
        assert sum(first < 1_500 and last > 3_000 for first, last in spans) > 0.7 * len(spans)
        drain(join.finish())
