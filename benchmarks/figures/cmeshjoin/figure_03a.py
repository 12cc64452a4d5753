"""The best cache size over memory."""

from benchmarks.figures.cmeshjoin.measures import cached_rows
from benchmarks.figures.cmeshjoin.setting import CMESHJOIN, MEMORY_SWEEP, PAPER
from benchmarks.figures.figure import Curves, Figure, Verdict

HERE, PRINTED = "model, bytes as here", "model, bytes of the paper"


def verdict(curves: Curves) -> Verdict:
    """It grows with memory."""
    shares = [100 * ratio for ratio in curves.ratios("CMESHJOIN", HERE)]
    return Verdict(
        holds=curves.is_rising("CMESHJOIN") and min(shares) > 50,
        number=f"{curves['CMESHJOIN'][0]:,.0f} thousand rows at 1 %, {curves['CMESHJOIN'][-1]:,.0f} at "
        f"10 %: {min(shares):.0f} to {max(shares):.0f} % of the best by the model "
        f"({curves[PRINTED][0]:,.0f} and {curves[PRINTED][-1]:,.0f} with the paper's bytes)",
        why=(
            "The join finds the size itself, by admitting rows that are worth their memory. The maximum is "
            "flat, and small counts are uncertain, so the size is not exactly the model's."
        ),
    )


FIGURE = Figure(
    name="cmeshjoin-03a",
    paper=PAPER,
    title="Rows in the cache over memory, skew 1",
    claim="The best cache size according to the cost model grows with memory.",
    sweep=MEMORY_SWEEP,
    contenders={
        "CMESHJOIN": CMESHJOIN,
        HERE: CMESHJOIN.with_(model="here"),
        PRINTED: CMESHJOIN.with_(model="paper"),
    },
    measure=cached_rows,
    verdict=verdict,
    unit="thousand rows",
)
