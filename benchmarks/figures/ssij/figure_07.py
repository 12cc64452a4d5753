"""Throughput over memory when a stream row matches one or many rows."""

from benchmarks.figures.figure import Curves, Figure, Verdict
from benchmarks.figures.measures import sustainable_rate
from benchmarks.figures.setting import Setting
from benchmarks.figures.ssij.memory import memory_sweep
from benchmarks.figures.ssij.setting import MASTER_ROWS, MESHJOIN, PAPER, SLOW_MESHJOIN, SSIJ, WHY_MESHJOIN

MANY = (1, 20, 400)


def matching(setting: Setting, rows: int) -> Setting:
    """A master in which every key has this many rows."""
    return setting.with_master(per_key=rows, spread="equal").with_stream(keys=MASTER_ROWS // rows)


def verdict(curves: Curves) -> Verdict:
    """Several times as fast as MeshJoin, the more so the more rows match."""
    slow = [curves.ratios(f"SSIJ 1:{rows}", "MeshJoin at 9.5 MB/s, 1:1") for rows in MANY]
    fast = [max(curves.ratios(f"SSIJ 1:{rows}", "MeshJoin 1:1")) for rows in MANY]
    return Verdict(
        holds=fast[0] >= 3 and fast[-1] >= 9,
        number=(
            f"SSIJ is at most {fast[0]:.2f} (1:1) and {fast[-1]:.2f} (1:400) times as fast as MeshJoin; "
            f"{max(slow[0]):.1f} and {max(slow[-1]):.1f} times as fast as MeshJoin at 9.5 MB/s"
        ),
        why=WHY_MESHJOIN,
    )


FIGURE = Figure(
    name="ssij-07",
    paper=PAPER,
    title="Throughput over memory when a stream row matches 1, 20 or 400 rows of the master, skew 1",
    claim="SSIJ has up to 3 times the throughput of MeshJoin for 1:1 joins and up to 9 times for 1:400.",
    sweep=memory_sweep((1, 5, 10)),
    contenders={
        **{f"SSIJ 1:{rows}": matching(SSIJ, rows) for rows in MANY},
        "MeshJoin 1:1": matching(MESHJOIN, 1),
        "MeshJoin at 9.5 MB/s, 1:1": matching(SLOW_MESHJOIN, 1),
    },
    measure=sustainable_rate,
    verdict=verdict,
)
