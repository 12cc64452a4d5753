"""Two, three and four inputs."""

from benchmarks.figures.figure import Curves, Figure, Verdict
from benchmarks.figures.miner.measures import share_online
from benchmarks.figures.miner.setting import BOUND, MEMORY_SWEEP, PAPER, Setting, by_inputs

WHY = (
    "With these keys not even two inputs can reach 55 % in 5 % of memory, even if it held their best tuples "
    "and nothing else. Here indexes, arrival times and join bits take memory too; with four inputs half of "
    "the memory goes to R1 and R4, because the largest relation is flushed until all are equally large."
)
_BOUND = "2 inputs, the most that is possible"


def verdict(curves: Curves) -> Verdict:
    """Four inputs: at least 55 % in 5 % of memory, 80 % in 20 %; at most 20 points less than two inputs."""
    four, two, most = curves["4 inputs"], curves["2 inputs"], curves[_BOUND]
    loss = max(before - after for before, after in zip(two, four, strict=True))
    holds = four[0] >= 55 and four[-1] >= 80 and loss <= 20
    return Verdict(
        holds=holds,
        number=f"four inputs: {four[0]:.0f} % in 5 % of memory, {four[-1]:.0f} % in 20 %; at most {loss:.0f} "
        f"points less than two inputs, for which {most[0]:.0f} % and {most[-1]:.0f} % are possible",
        why="" if holds else WHY,
    )


FIGURE = Figure(
    name="miner-20",
    paper=PAPER,
    title="Share of the result before the inputs end, chains of two, three and four inputs",
    claim="With four inputs 55 % of the result comes online in 5 % of memory, and more than 80 % in 20 %; "
    "every further input costs little.",
    sweep=MEMORY_SWEEP,
    contenders={**by_inputs(Setting()), _BOUND: Setting(algorithm=BOUND)},
    measure=share_online,
    verdict=verdict,
    unit="% of all results",
)
