"""MJoin: what leaves memory."""

import itertools

import numpy as np

from adjoin.streamjoin.base.storage import Storage
from adjoin.streamjoin.baselines.mjoin import CoordinatedFlush, RandomFlush
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
            for blocks in join._storage.blocks
        ]
        assert buckets[0] == buckets[1] == buckets[2] == buckets[3]
        assert 0 < len(buckets[0]) < policy.partitions.count / 2
        drain(join.finish())


def test_other_joins_flush_pseudo_random_tuples(monkeypatch):
    """Not only the lowest, the highest or the middle ones: they are spread over all keys."""
    ranks, write = [], Storage.write

    def noted(self, leaving):
        index = self.inputs[leaving.side].indexes[leaving.attribute]
        among = np.sort(index.keys(index.all()))
        if leaving.entries.size > 20 and len(among) > 2 * leaving.entries.size:
            ranks.append(np.searchsorted(among, index.keys(leaving.entries)) / len(among))
        return write(self, leaving)

    monkeypatch.setattr(Storage, "write", noted)
    tree = Tree([0, 1], ["equality"] * 2, 5_000, 1)
    with tree.join("mjoin", seed=3) as join:
        assert isinstance(join._policy, RandomFlush)
        for _ in range(6):
            for relation in range(3):
                drain(join.push(tree.names[relation], tree.draw(relation, 200)))
    assert len(ranks) > 5
    for each in ranks:
        assert each.min() < 0.2
        assert each.max() > 0.8
        assert 0.3 < np.median(each) < 0.7
