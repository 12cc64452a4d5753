"""The budget is real: the process grows by no more than what was given, and a fixed allowance."""

import json
import subprocess
import sys

import pytest

ALLOWANCE_BYTES = 24 << 20
"""Heap that the allocators keep, thread stacks, and the result batch in the consumer's hands."""

CHILD = """
import json, sys
import numpy as np, pyarrow as pa
import adjoin

adjoin.return_freed_memory()

def rss(field):
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith(field))
    return int(line.split()[1]) * 1024

name, memory, options, batch_rows, keys = sys.argv[1:]
batch_rows, keys, options = int(batch_rows), int(keys), json.loads(options)
random = np.random.default_rng(1)
text = pa.array(["x" * 84] * batch_rows)

def rows(column):
    key, number = random.integers(0, keys, batch_rows), random.integers(0, 9, batch_rows)
    return pa.record_batch({"k": key, column: number, "text": text})

left, right = rows("l").schema, rows("r").schema
SIDES = (("left", "l"), ("right", "r"))

def made(memory):
    if name != "MINER":
        return getattr(adjoin, name)(left, right, on="k", memory=memory, **options)
    on = ["left.k = right.k", "right.r = more.k"]
    return adjoin.MINER({"left": left, "right": right, "more": left}, on, memory)

def run(memory, batches):
    count = 0
    with made(memory) as join:
        for at in range(batches):
            for side, column in SIDES if name != "MINER" else (*SIDES, ("more", "l")):
                for result in join.push(side, rows(column)):
                    count += result.num_rows
            if at % 8 == 7:
                for result in join.idle(0.05):
                    count += result.num_rows
        for result in join.finish():
            count += result.num_rows
        return {"rows": count, **join.metrics()}

run("4MB", 6)  # compiles every kernel before the base line is taken
base = rss("VmRSS")
with open("/proc/self/clear_refs", "w") as peak:
    peak.write("5")
seen = run(memory, 600_000 // batch_rows)
print(json.dumps({"grown": rss("VmHWM") - base, **seen}, default=int))
"""


@pytest.mark.parametrize(
    ("name", "memory", "batch_rows", "options"),
    [
        ("DINER", "12MB", 5_000, {}),
        ("DINER", "12MB", 20_000, {"results": "complete", "how": "full"}),
        pytest.param("DINER", "32MB", 60_000, {"results": "complete"}, marks=pytest.mark.slow),
        pytest.param("DINER", "32MB", 60_000, {"results": "complete", "within": 1}, marks=pytest.mark.slow),
        pytest.param("MINER", "16MB", 5_000, {}, marks=pytest.mark.slow),
        pytest.param("DINER", "32MB", 60_000, {"within": 1}, marks=pytest.mark.slow),
        pytest.param("HashMergeJoin", "12MB", 5_000, {}, marks=pytest.mark.slow),
        pytest.param("RPJ", "12MB", 5_000, {}, marks=pytest.mark.slow),
        pytest.param("XJoin", "12MB", 5_000, {}, marks=pytest.mark.slow),
        pytest.param("ProgressiveMergeJoin", "12MB", 5_000, {}, marks=pytest.mark.slow),
    ],
)
def test_resident_growth_follows_the_budget(name, memory, batch_rows, options):
    arguments = [name, memory, json.dumps(options), str(batch_rows), "500000"]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *arguments], capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["rows"] > 600_000 * 0.9
    assert seen["blocks_flushed"] > 50
    assert seen["peak_bytes"] <= seen["memory_bytes"]
    assert seen["grown"] <= seen["memory_bytes"] + ALLOWANCE_BYTES
    assert seen["grown"] >= seen["memory_bytes"] // 2
