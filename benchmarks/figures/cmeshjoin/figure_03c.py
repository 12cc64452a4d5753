"""Service rate over the size of the master."""

from benchmarks.figures.cmeshjoin.bound import allowed
from benchmarks.figures.cmeshjoin.measures import service_rate
from benchmarks.figures.cmeshjoin.setting import CMESHJOIN, INLJ, MESHJOIN, PAPER, CacheSetting
from benchmarks.figures.figure import Curves, Figure, Sweep, Verdict

_MEMORY_BYTES = 1.12e9


def with_rows(setting: CacheSetting, millions: float) -> CacheSetting:
    """A master of this size."""
    return setting.with_data(rows=int(millions * 1e6))


def verdict(curves: Curves) -> Verdict:
    """The larger the master, the larger the gain."""
    ratios = curves.ratios("CMESHJOIN", "MESHJOIN")
    bounds = [allowed(with_rows(FIGURE.contenders["CMESHJOIN"], x)) for x in (curves.x[0], curves.x[-1])]
    over_inlj = min(curves.ratios("CMESHJOIN", "INLJ"))
    return Verdict(
        holds=ratios[0] >= 4.5 and ratios[-1] >= 6.5,
        number=f"{ratios[0]:.1f} times MESHJOIN at 20 million rows, {ratios[-1]:.1f} times at 100; the "
        f"paper's model allows {bounds[0]:.1f} and {bounds[1]:.1f}; at least {over_inlj:,.0f} times INLJ",
        why=(
            "With the same memory, a smaller share of a larger master is cached. So the gain must fall with "
            "the size of the master, by the paper's own model as well; that it rose there cannot be due to "
            "the cache."
        ),
    )


FIGURE = Figure(
    name="cmeshjoin-03c",
    paper=PAPER,
    title="Service rate over the size of the master, memory 1.12 GB, skew 1",
    claim=(
        "CMESHJOIN is 4.5 times as fast as MESHJOIN with 20 million rows, 6.5 times with 100 million, and "
        "far faster than INLJ."
    ),
    sweep=Sweep("rows of the master, millions", (20, 40, 70, 100), with_rows),
    contenders={
        "CMESHJOIN": CMESHJOIN.with_(memory_bytes=_MEMORY_BYTES),
        "MESHJOIN": MESHJOIN.with_(memory_bytes=_MEMORY_BYTES),
        "INLJ": INLJ.with_(memory_bytes=_MEMORY_BYTES),
    },
    measure=service_rate,
    verdict=verdict,
    is_logarithmic=True,
)
