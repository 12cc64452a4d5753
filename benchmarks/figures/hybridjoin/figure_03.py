"""How much of the stream needs which part of the master."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from benchmarks.figures.figure import Curves, Figure, Measurement, Sweep, Verdict, World
from benchmarks.figures.hybridjoin.setting import PAPER
from workloads import Zipf

_PAGES = 16_000
_ROWS_PER_PAGE = 65
_SEGMENT_PAGES = 20
_STREAM_ROWS = 10_000_000


@dataclass(frozen=True)
class Segment:
    """Adjacent pages; `first_page` is the first."""

    first_page: int = 0


def use(segment: Segment, world: World) -> Measurement:
    """Stream rows per million that need one of the pages."""
    keys = Zipf(_PAGES * _ROWS_PER_PAGE, form="continuous", seed=world.seed).draw(_STREAM_ROWS)
    page = keys // _ROWS_PER_PAGE - segment.first_page
    return Measurement(1e6 * float(np.mean((page >= 0) & (page < _SEGMENT_PAGES))))


def verdict(curves: Curves) -> Verdict:
    """It decreases along the master."""
    used = curves["stream"]
    return Verdict(
        holds=all(later < before for before, later in pairwise(used)),
        number=f"of a million stream rows {used[0]:,.0f} need the first segment, {used[1]:,.0f} the next "
        f"one shown, {used[-1]:,.0f} the last",
        why="The keys of the stream follow Zipf's law, and the master is sorted by frequency.",
    )


FIGURE = Figure(
    name="hybridjoin-03",
    paper=PAPER,
    title="Stream rows that need a segment of 20 pages, by its position in a master of 16,000 pages",
    claim="The rate of page use decreases towards the end of the master.",
    sweep=Sweep(
        "first page of the segment",
        (0, 500, 1000, 2000, 4000, 8000, 15_980),
        lambda _, x: Segment(int(x)),
    ),
    contenders={"stream": Segment()},
    measure=use,
    verdict=verdict,
    unit="rows per million",
    is_logarithmic=True,
)
