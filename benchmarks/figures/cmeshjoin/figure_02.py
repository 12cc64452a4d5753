"""The size of the cache."""

from benchmarks.figures.cmeshjoin.measures import service_rate
from benchmarks.figures.cmeshjoin.setting import CMESHJOIN, PAPER, CacheSetting
from benchmarks.figures.figure import Curves, Figure, Sweep, Verdict

FIXED, RULE, MODEL = "fixed cache", "cache of adjoin's choice", "model, bytes as here"
SHARES = (0, 5, 10, 15, 25, 40, 60)
SMALL = CMESHJOIN.with_(memory=0.01)


def with_share(setting: CacheSetting, percent: float) -> CacheSetting:
    """A cache of this size, unless the join chooses the size."""
    return setting if setting.cache_share is None else setting.with_(cache_share=percent / 100)


def verdict(curves: Curves) -> Verdict:
    """Measured and predicted rates agree, with a maximum between no cache and a large one."""
    off = max(abs(ratio - 1) for ratio in curves.ratios(MODEL, FIXED))
    best, predicted = (curves.x[curves[name].index(max(curves[name]))] for name in (FIXED, MODEL))
    top = max(curves[FIXED])
    return Verdict(
        holds=off < 0.15 and curves[FIXED][0] < 0.8 * top and curves[FIXED][-1] < 0.95 * top,
        number=f"best fixed share {best:g} % ({top:,.0f} rows/s), by the model {predicted:g} % "
        f"({max(curves[MODEL]):,.0f} rows/s); they differ by at most {100 * off:.0f} %; with adjoin's "
        f"rule {max(curves[RULE]):,.0f} rows/s",
        why=(
            "They differ most at 5 %, which is too little for a cache to open, and at 60 %, where each "
            "portion of the master admits a single row at this scale. Besides, a cache that admits every row "
            "it sees does not hold exactly the most frequent ones, as the model assumes. adjoin's rule for "
            "admitting rows needs no given size, and comes close to the best one."
        ),
    )


FIGURE = Figure(
    name="cmeshjoin-02",
    paper=PAPER,
    title="Service rate over the cache's share of a memory of 1 %, skew 1",
    claim="The estimates of the cost model match the measurements closely; there is a best cache size in "
    "between.",
    sweep=Sweep("cache, % of the memory", SHARES, with_share),
    contenders={
        FIXED: SMALL.with_(cache_share=0.0),
        RULE: SMALL,
        MODEL: SMALL.with_(cache_share=0.0, model="here"),
    },
    measure=service_rate,
    verdict=verdict,
)
