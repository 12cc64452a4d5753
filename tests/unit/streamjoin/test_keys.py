"""Keys so long that they are compared in portions. Keys of other types: see tests/conformance."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin import DINER, MINER
from adjoin.streamjoin.base.result_builder import InSlots


@pytest.mark.parametrize("relations", [2, 3])
def test_long_keys_are_fetched_a_portion_at_a_time(relations, monkeypatch):
    rows = pa.record_batch({"name": ["x" * 3_000] * 40, "n": np.arange(40)})
    names = [f"r{number}" for number in range(relations)]
    if relations == 2:
        join: Any = DINER(rows.schema, rows.schema, "name", "8MB", columns=["n", "n_right"])
        names = ["left", "right"]
    else:
        on = ["r0.name = r1.name", "r1.name = r2.name"]
        join = MINER(dict.fromkeys(names, rows.schema), on, "8MB", columns=["r0_n", "r1_n", "r2_n"])
    taken, take = [], InSlots.take

    def noted(self, *arguments):
        columns = take(self, *arguments)
        taken.append(sum(column.nbytes for column in columns))
        return columns

    monkeypatch.setattr(InSlots, "take", noted)
    with join:
        found = list(join.run([(name, rows) for name in names]))
        assert max(taken) <= join._storage.sizes.work_bytes // 2
    assert sum(batch.num_rows for batch in found) == 40**relations
    assert sum(taken) > join._storage.sizes.work_bytes
