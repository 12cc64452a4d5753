"""Joins that return all results at once: after every call, exactly what the oracle returns."""

from typing import Any

import numpy as np
import pytest

from tests.unit.streamjoin.complete.model import KEYS, LEFT, RIGHT, Pair

HOWS = ("inner", "left", "right", "full", "semi", "anti")
BOUNDS: dict[str, Any] = {
    "none": None,
    "both": (20, 35),
    "open before": (None, 10),
    "open after": (-5, None),
    "narrow": (0, 0),
}


def play(pair: Pair, steps: int, most_rows: int) -> None:
    """Push, expire and ask at random; the times move on."""
    random = np.random.default_rng(pair.random.integers(1 << 30))
    for _ in range(steps):
        what = random.random()
        if what < 0.75 or pair.model.bounds is None:
            pair.push(int(random.integers(2)), int(random.choice([0, 1, most_rows // 3, most_rows])))
        elif what < 0.85:
            pair.expire(pair.clock - int(random.integers(0, 60)))
        elif what < 0.92:
            pair.expire_rows(*(None if random.random() < 0.3 else pair.clock - 40 for _ in range(2)))
        else:
            limits = [None if random.random() < 0.4 else pair.clock - 10 for _ in range(2)]
            pair.keep_only(*limits)
        if random.random() < 0.3:
            pair.newly_matched()
        if random.random() < 0.06:
            pair.restore()
        if random.random() < 0.06:
            pair.rebuild()
        pair.clock += int(random.integers(0, 12))
    pair.finish()


@pytest.mark.parametrize(
    "how",
    ["full", "anti", *(pytest.param(how, marks=pytest.mark.slow) for how in HOWS if how[0] not in "fa")],
)
@pytest.mark.parametrize("kind", KEYS)
def test_every_call_returns_all_results_so_far(kind, how):
    first = list(KEYS).index(kind) + HOWS.index(how)
    for seed in (first % len(BOUNDS), (first + 2) % len(BOUNDS)):
        bounds, keys = list(BOUNDS.values())[seed], (40, 300, 3_000)[seed % 3]
        play(Pair(seed, kind, how, bounds, keys=keys, width=600), 25, 250)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", KEYS)
def test_many_more_cases(kind, how, seed):
    bounds = list(BOUNDS.values())[seed % len(BOUNDS)]
    memory = ("400KB", "700KB", "3MB")[seed % 3]
    keys = (1, 12, 300, 5_000)[seed % 4]
    play(
        Pair(seed + 100, kind, how, bounds, keys=keys, width=900, memory=memory), 40, 60 if keys == 1 else 300
    )


@pytest.mark.parametrize(
    "how",
    ["full", "semi", *(pytest.param(how, marks=pytest.mark.slow) for how in HOWS if how[0] not in "fs")],
)
def test_most_of_the_state_is_on_disk(how):
    pair = Pair(7, "integers", how, None, keys=3_000, width=2_000)
    for _ in range(8):
        for side in (LEFT, RIGHT):
            pair.push(side, 300)
    metrics = pair.join.metrics()
    assert metrics["rows_on_disk"] > 5 * metrics["rows_in_memory"] or how in {"semi", "anti"}
    pair.finish()
