"""TPC-H and cloud reports."""

from dataclasses import replace

from benchmarks.figures.figure import Curves, Figure, Verdict
from benchmarks.figures.masters import Clouds, Parts
from benchmarks.figures.measures import sustainable_rate
from benchmarks.figures.setting import Setting
from benchmarks.figures.ssij.memory import memory_sweep
from benchmarks.figures.ssij.setting import MESHJOIN, PAPER, SLOW_MESHJOIN, SSIJ, WHY_MESHJOIN
from benchmarks.figures.streams import CloudStream, LineItems


def tpch(setting: Setting) -> Setting:
    """Items sold, with the description of the part."""
    return replace(
        setting,
        master=Parts(factor=100),
        stream=LineItems(factor=100, rows=10_000_000),
        key={"l_partkey": "p_partkey"},
    )


def clouds(setting: Setting) -> Setting:
    """December reports with those of April and August at the same longitude."""
    return replace(setting, master=Clouds(20_000_000), stream=CloudStream(6_000_000), key="longitude")


def verdict(curves: Curves) -> Verdict:
    """Ahead of MeshJoin, most of all with little memory."""
    fast = {what: curves.ratios(f"SSIJ, {what}", f"MeshJoin, {what}") for what in ("TPC-H", "clouds")}
    slow = {what: curves.ratios(f"SSIJ, {what}", f"MeshJoin at 9.5 MB/s, {what}") for what in fast}
    return Verdict(
        holds=all(min(ratios) > 1 and ratios[0] == max(ratios) for ratios in fast.values()),
        number="; ".join(
            f"{what}: {fast[what][0]:.2f} (1 %) to {fast[what][-1]:.2f} (10 %) times MeshJoin, "
            f"{slow[what][0]:.1f} to {slow[what][-1]:.1f} times MeshJoin at 9.5 MB/s"
            for what in fast
        ),
        why=f"Parts are sold evenly, so the cache helps little; reports come by longitude. {WHY_MESHJOIN}",
    )


FIGURE = Figure(
    name="ssij-08",
    paper=PAPER,
    title="Throughput over memory on TPC-H (Part and LineItem) and on cloud reports",
    claim="SSIJ is ahead of MeshJoin, most of all with little memory.",
    sweep=memory_sweep((1, 2.5, 5, 10)),
    contenders={
        f"{name}, {what}": of(setting)
        for what, of in (("TPC-H", tpch), ("clouds", clouds))
        for name, setting in (("SSIJ", SSIJ), ("MeshJoin", MESHJOIN), ("MeshJoin at 9.5 MB/s", SLOW_MESHJOIN))
    },
    measure=sustainable_rate,
    verdict=verdict,
)
