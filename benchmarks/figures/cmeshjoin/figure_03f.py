"""Cloud reports."""

from benchmarks.figures.cmeshjoin.data import Clouds
from benchmarks.figures.cmeshjoin.measures import service_rate
from benchmarks.figures.cmeshjoin.setting import CMESHJOIN, MEMORY_SWEEP, MESHJOIN, PAPER
from benchmarks.figures.figure import Curves, Figure, Verdict


def verdict(curves: Curves) -> Verdict:
    """Better with every memory size."""
    ratios = curves.ratios("CMESHJOIN", "MESHJOIN")
    return Verdict(
        holds=min(ratios) > 1,
        number=f"{min(ratios):.2f} to {max(ratios):.2f} times MESHJOIN",
        why=(
            "A longitude has 555 reports on average, on nine pages, and all of them would have to be "
            "cached: 70 KB, which only pays off if a thousand rows are pending for it. Keys on several pages "
            "are not cached here. The paper caches one report per longitude, which loses the results of all "
            "the others. At this scale 1 % is half a megabyte, and an empty cache already takes much of it."
        ),
    )


FIGURE = Figure(
    name="cmeshjoin-03f",
    paper=PAPER,
    title="Service rate over memory, synthetic cloud reports by longitude",
    claim="CMESHJOIN is better than MESHJOIN with every memory size.",
    sweep=MEMORY_SWEEP,
    contenders={"CMESHJOIN": CMESHJOIN.with_(data=Clouds()), "MESHJOIN": MESHJOIN.with_(data=Clouds())},
    measure=service_rate,
    verdict=verdict,
)
