"""DINER: what it does beside what all joins of two streams do."""

import pytest

from adjoin import DINER, AdjoinError, BudgetError, OptionError, SchemaError
from tests.unit.streamjoin.inputs import LEFT, RIGHT, Input, expected, pairs_of


def test_once_an_input_has_ended_the_other_leaves_first():
    left, right = Input(LEFT, 1, 5_000), Input(RIGHT, 2, 5_000)
    items = [("left", left.draw(800)), ("left", None), *(("right", right.draw(500)) for _ in range(12))]
    with DINER(LEFT, RIGHT, on="k", memory="450KB", block_bytes=4096, max_outer=3) as join:
        found = list(join.run(items))
        assert join.metrics()["results_online"] == len(expected(left.table, right.table, "l.k = r.k"))
    assert pairs_of(found) == expected(left.table, right.table, "l.k = r.k")


def test_what_cannot_be_joined_is_refused():
    with pytest.raises(SchemaError, match="has no column 'x'"):
        DINER(LEFT, RIGHT, on="x")
    with pytest.raises(BudgetError, match="give memory="):
        DINER(LEFT, RIGHT, on="k", memory="100KB", block_bytes=1 << 20)
    with DINER(LEFT, RIGHT, on="k", memory="4MB") as join:
        with pytest.raises(OptionError, match="left, right"):
            join.push("middle", Input(LEFT, 1, 3).draw(1))
        with pytest.raises(SchemaError, match="right input"):
            join.push("right", Input(LEFT, 1, 3).draw(1))
        join.end("left")
        with pytest.raises(AdjoinError, match="ended"):
            join.push("left", Input(LEFT, 1, 3).draw(1))
