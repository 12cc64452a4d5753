"""The budget is real: the process grows by no more than what was given, and a fixed allowance."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from adjoin import Master

ALLOWANCE_BYTES = 24 << 20
"""Heap that the allocators keep, thread stacks, and the result batch in the consumer's hands."""

CHILD = """
import json, sys
import numpy as np, pyarrow as pa
import adjoin
from adjoin.semistream.algorithms import algorithm_named

adjoin.return_freed_memory()

def rss(field):
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith(field))
    return int(line.split()[1]) * 1024

path, small, name, memory, options, *numbers = sys.argv[1:]
options = {"on": "id", "how": "left", **json.loads(options)}
batch_rows, keys = map(int, numbers)
kind = algorithm_named(name)
random = np.random.default_rng(1)
notes = pa.array(["n" * 20] * batch_rows)

def sales():
    if "between" not in options:
        return pa.record_batch({"id": random.integers(0, keys, batch_rows), "note": notes})
    low = random.integers(0, keys, batch_rows)
    return pa.record_batch({"low": low, "high": low + 1, "note": notes})

# Compile every kernel and start every pool before the base line is taken.
with kind(adjoin.Master.open(small), memory="4MB", **options) as join:
    for _ in join.run([sales()] * 3):
        pass
base = rss("VmRSS")
with open("/proc/self/clear_refs", "w") as peak:
    peak.write("5")
with kind(adjoin.Master.open(path), memory=memory, **options) as join:
    rows = 0
    for _ in range(1_200_000 // batch_rows):
        for result in join.push(sales()):
            rows += result.num_rows
    for result in join.finish():
        rows += result.num_rows
    print(json.dumps({"grown": rss("VmHWM") - base, "rows": rows, **join.metrics()}))
"""


@pytest.fixture(scope="module")
def masters(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, int]:
    path = tmp_path_factory.mktemp("resident")
    rows = 600_000
    table = pa.table({"id": np.arange(rows) * 2, "text": pa.array(["x" * 90] * rows)})
    Master.build(table, key="id", path=path / "large").close()
    Master.build(table.slice(0, 2000), key="id", path=path / "small").close()
    return path / "large", path / "small", 2 * rows


RANGE = {"between": ["low", "high"], "deadline": 3600.0}


@pytest.mark.parametrize(
    ("algorithm", "memory", "batch_rows"),
    [
        ("ssij by range", "48MB", 20_000),
        ("ssij", "12MB", 10_000),
        pytest.param("ssij", "12MB", 200, marks=pytest.mark.slow),
        pytest.param("ssij", "48MB", 100_000, marks=pytest.mark.slow),
        pytest.param("ssij+front", "12MB", 10_000, marks=pytest.mark.slow),
        pytest.param("hybridjoin", "12MB", 10_000, marks=pytest.mark.slow),
        pytest.param("xhybridjoin", "24MB", 50_000, marks=pytest.mark.slow),
        pytest.param("meshjoin", "12MB", 10_000, marks=pytest.mark.slow),
        ("cmeshjoin", "24MB", 50_000),
    ],
)
def test_resident_growth_follows_the_budget(masters, algorithm, memory, batch_rows):
    large, small, keys = masters
    name, _, is_range = algorithm.partition(" by ")
    options = json.dumps(RANGE if is_range else {})
    numbers = str(batch_rows), str(keys)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(large), str(small), name, memory, options, *numbers],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["rows"] == 1_200_000 // batch_rows * batch_rows
    assert seen["peak_bytes"] <= seen["memory_bytes"]
    assert seen["grown"] <= seen["memory_bytes"] + ALLOWANCE_BYTES
    # The batches in the caller's hands aside, most of the budget is put to use.
    assert seen["grown"] >= seen["memory_bytes"] // 2
