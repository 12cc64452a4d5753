"""A joining process is killed repeatedly; its snapshots lose nothing and repeat nothing."""

import os
import random
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pytest

from adjoin.streamjoin.base.phases import SpillingJoin
from tests.unit.streamjoin.inputs import LEFT, RIGHT, Input, expected, pairs_of, small
from tests.unit.streamjoin.manyway.relations import Tree

STEPS = 24
ROWS = 400


class TwoStreams:
    """Two inputs that draw the same rows every time."""

    names = ("left", "right")

    def __init__(self) -> None:
        self._inputs = (Input(LEFT, 1, 300), Input(RIGHT, 2, 300))

    def draw(self, side: int) -> pa.RecordBatch:
        return self._inputs[side].draw(ROWS)

    def join(self, name: str) -> SpillingJoin:
        return small(name)

    def are_all(self, found: list[pa.RecordBatch]) -> bool:
        return pairs_of(found) == expected(self._inputs[0].table, self._inputs[1].table, "l.k = r.k")


class FourStreams:
    """A chain of relations that draws the same rows every time."""

    def __init__(self) -> None:
        self._tree = Tree([0, 1, 2], ["equality", "band", "equality"], 900, 1)
        self.names = tuple(self._tree.names)

    def draw(self, side: int) -> pa.RecordBatch:
        return self._tree.draw(side, ROWS)

    def join(self, name: str) -> SpillingJoin:
        return self._tree.join(name)

    def are_all(self, found: list[pa.RecordBatch]) -> bool:
        return self._tree.found(found) == self._tree.expected()


def streams(name: str) -> TwoStreams | FourStreams:
    return FourStreams() if name == "miner" else TwoStreams()


CHILD = """
import os, sys, time
from pathlib import Path
import pyarrow as pa
from tests.unit.streamjoin.test_killed import STEPS, streams

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
inputs = streams(name)
join = inputs.join(name)
if done:
    join.restore((path.name.replace("!", "/"), path.read_bytes()) for path in (done[-1] / "state").iterdir())
print("ready", flush=True)
for step in range(STEPS + 1):
    if step == STEPS:
        if first <= STEPS:
            keep(step, (), join.finish(), join.schema)
        break
    side = step % len(inputs.names)
    batch = inputs.draw(side)
    if step < first:
        continue
    found = list(join.push(inputs.names[side], batch)) + list(join.idle(0.1 * (step % 3 == 2)))
    keep(step, join.snapshot(), found, join.schema)
"""


@pytest.mark.parametrize(
    "name",
    [
        "diner",
        pytest.param("miner", marks=pytest.mark.slow),
        pytest.param("hmj", marks=pytest.mark.slow),
        pytest.param("rpj", marks=pytest.mark.slow),
    ],
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
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
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
    inputs = streams(name)
    for step in range(STEPS):
        inputs.draw(step % len(inputs.names))
    assert kills > 0
    assert inputs.are_all(found)
