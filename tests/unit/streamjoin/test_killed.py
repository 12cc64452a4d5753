"""A process that joins is killed again and again; its snapshots lose nothing and repeat nothing."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.streamjoin.inputs import LEFT, RIGHT, Input, expected, pairs_of

STEPS = 24
ROWS = 400

CHILD = """
import os, sys, time
from pathlib import Path
import pyarrow as pa
from tests.unit.streamjoin.inputs import LEFT, RIGHT, Input, small
from tests.unit.streamjoin.test_killed import ROWS, STEPS

folder, name = Path(sys.argv[1]), sys.argv[2]

def keep(step, values, batches, schema):
    unfinished, done = folder / "unfinished", folder / f"{step:03d}"
    for path in (unfinished / "state").glob("*") if unfinished.exists() else ():
        path.unlink()
    (unfinished / "state").mkdir(parents=True, exist_ok=True)
    for key, value in values:
        (unfinished / "state" / key.replace("/", "!")).write_bytes(value)
    with pa.OSFile(str(unfinished / "results.arrow"), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    unfinished.rename(done)  # all of a step, or nothing of it

done = sorted(path for path in folder.iterdir() if path.name.isdigit())
first = len(done)
inputs = {"left": Input(LEFT, 1, 300), "right": Input(RIGHT, 2, 300)}
join = small(name)
if done:
    join.restore((path.name.replace("!", "/"), path.read_bytes()) for path in (done[-1] / "state").iterdir())
print("ready", flush=True)
for step in range(STEPS + 1):
    if step == STEPS:
        if first <= STEPS:
            keep(step, (), join.finish(), join.schema)
        break
    side = ("left", "right")[step % 2]
    batch = inputs[side].draw(ROWS)
    if step < first:
        continue
    found = list(join.push(side, batch)) + list(join.idle(0.1 * (step % 3 == 2)))
    keep(step, join.snapshot(), found, join.schema)
"""


@pytest.mark.parametrize(
    "name",
    ["diner", pytest.param("hmj", marks=pytest.mark.slow), pytest.param("rpj", marks=pytest.mark.slow)],
)
def test_killed_at_any_time_nothing_is_lost_or_repeated(name, tmp_path):
    chance = random.Random(name)
    kills = 0
    for _ in range(60):
        with subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path), name],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        ) as child:
            assert child.stdout is not None
            assert child.stderr is not None
            child.stdout.readline()
            if kills < 3:
                time.sleep(chance.uniform(0.02, 0.4))
                child.send_signal(signal.SIGKILL)
            code = child.wait(timeout=120)
            complaint = child.stderr.read()
        if code == 0:
            break
        assert code == -signal.SIGKILL, complaint
        kills += 1
    found: list[pa.RecordBatch] = []
    for step in range(STEPS + 1):
        with pa.ipc.open_file(tmp_path / f"{step:03d}" / "results.arrow") as file:
            found += [file.get_batch(number) for number in range(file.num_record_batches)]
    inputs = {"left": Input(LEFT, 1, 300), "right": Input(RIGHT, 2, 300)}
    for step in range(STEPS):
        inputs[("left", "right")[step % 2]].draw(ROWS)
    assert kills > 0
    assert pairs_of(found) == expected(inputs["left"].table, inputs["right"].table, "l.k = r.k")
