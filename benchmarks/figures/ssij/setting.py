"""The paper on SSIJ, and the defaults of its experiments (its table II)."""

from dataclasses import replace
from pathlib import Path

from adjoin.master.device import Cost
from adjoin.memory.arena import BLOCK_BYTES
from benchmarks.figures.figure import Paper
from benchmarks.figures.masters import KeyedMaster
from benchmarks.figures.setting import Setting
from benchmarks.figures.simulation import PAPERS_DISK
from benchmarks.figures.streams import LocalStream, ZipfStream

MASTER_ROWS = 80_000_000
KEYS = 250_000

PAPER = Paper(
    name="ssij",
    citation=(
        "M. A. Bornea, A. Deligiannakis, Y. Kotidis, V. Vassalos: Semi-Streamed Index Join for "
        "Near-Real Time Execution of ETL Transformations, ICDE 2011"
    ),
    scale=25,
    setting=Path(__file__).with_name("setting.md").read_text(),
)

SSIJ = Setting(
    algorithm="ssij",
    master=KeyedMaster(rows=MASTER_ROWS, per_key=MASTER_ROWS // KEYS, spread="random"),
    stream=ZipfStream(keys=KEYS, rows=80_000_000),
    memory=0.075,
)
"""With adjoin's defaults."""

AS_PRINTED = SSIJ.with_scaled(stream_rows=1_000_000, input_rows=250_000)
"""With the paper's thresholds."""

MESHJOIN = replace(SSIJ, algorithm="meshjoin")
SLOW_MESHJOIN = replace(MESHJOIN, disk=Cost(PAPERS_DISK.positioning_seconds, BLOCK_BYTES / 9.5e6))

PRINTED = "SSIJ, thresholds of the paper"
SLOW = "MeshJoin at 9.5 MB/s"
WHY_MESHJOIN = (
    "MeshJoin fills all of its memory with rows and reads the master at the speed of the disk; "
    "the paper's MeshJoin read at a tenth of that speed, see above."
)

LOCAL = replace(
    AS_PRINTED,
    master=KeyedMaster(rows=MASTER_ROWS, per_key=16, spread="random"),
    stream=LocalStream(keys=MASTER_ROWS // 16, intervals=20, interval_rows=2_000_000),
    memory=0.1,
)
"""In every interval the stream needs a different twentieth of the keys."""
