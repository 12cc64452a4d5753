"""Cloud reports."""

from benchmarks.figures.cmeshjoin.data import Clouds
from benchmarks.figures.cmeshjoin.measures import service_rate
from benchmarks.figures.cmeshjoin.setting import CMESHJOIN, MEMORY_SWEEP, MESHJOIN, PAPER
from benchmarks.figures.figure import Curves, Figure, Verdict


def verdict(curves: Curves) -> Verdict:
    """Better with every memory."""
    ratios = curves.ratios("CMESHJOIN", "MESHJOIN")
    return Verdict(
        holds=min(ratios) > 1,
        number=f"{min(ratios):.2f} to {max(ratios):.2f} times MESHJOIN",
        why=(
            "A longitude has 555 reports on average, on nine pages, and all of them would have to be "
            "cached: 70 KB, which only pays if a thousand rows wait for it. Keys on several pages are not "
            "cached here. The paper caches one report of a longitude, which loses the results of all "
            "others. At 1 % there is half a megabyte at this scale, and what an empty cache keeps for "
            "itself is much of it."
        ),
    )


FIGURE = Figure(
    name="cmeshjoin-03f",
    paper=PAPER,
    title="Service rate over memory, made-up cloud reports by longitude",
    claim="CMESHJOIN is better than MESHJOIN with every memory.",
    sweep=MEMORY_SWEEP,
    contenders={"CMESHJOIN": CMESHJOIN.with_(data=Clouds()), "MESHJOIN": MESHJOIN.with_(data=Clouds())},
    measure=service_rate,
    verdict=verdict,
)
