"""An upper bound for any join: results while r2 and r3 arrive, if memory always held their best tuples."""

import numpy as np

from benchmarks.figures.figure import World
from benchmarks.figures.miner.relations import CHAINS

_STEPS = 200


def most_online(memory: float, world: World) -> float:
    """The percentage of the result of r2 and r3 that can be emitted while they arrive.

    An arriving row with key k matches the other relation's tuples with k in memory. Both relations send k
    at the same rate, so it does not matter which relation a kept tuple belongs to: tuples with frequent keys
    are better. Nothing but tuples takes memory here.

    Args:
        memory: As a share of the input.
        world: The scale.
    """
    large = CHAINS[2].draw(world)
    counts = sum(
        np.bincount(batch["b"].to_numpy(), minlength=world.scaled(10_000)) for batch in large.values()
    )
    arriving = np.sort(counts / 2)[::-1]
    room = memory * sum(batch.num_rows for batch in large.values())
    results = 0.0
    for step in range(_STEPS):
        there = 2 * arriving * (step + 0.5) / _STEPS
        before = np.concatenate([[0.0], np.cumsum(there)[:-1]])
        results += float((arriving * np.clip(room - before, 0, there)).sum()) / _STEPS
    return 100 * results / float((arriving**2).sum())
