"""The sizes of both parts."""

from benchmarks.figures.figure import Curves, Figure, Sweep, Verdict
from benchmarks.figures.queues.measures import service_rate
from benchmarks.figures.xhybridjoin.setting import PAPER, TUNED

SWAPPABLE = (50, 200, 400, 1600)


def name_of(pages: int) -> str:
    """The name of the curve."""
    return f"{pages} swappable pages"


def verdict(curves: Curves) -> Verdict:
    """A rise and a fall over both sizes."""
    tops = [max(curves[name_of(pages)]) for pages in SWAPPABLE]
    middle = curves[name_of(SWAPPABLE[tops.index(max(tops))])]
    best = curves.x[middle.index(max(middle))]
    over_pinned = max(middle[0], middle[-1]) / max(tops)
    over_swappable = max(tops[0], tops[-1]) / max(tops)
    return Verdict(
        holds=over_pinned < 0.95 and over_swappable < 0.95,
        number=f"best {max(tops):,.0f} rows/s with {SWAPPABLE[tops.index(max(tops))]} swappable and "
        f"{best:g} pinned pages; at the ends at most {over_pinned:.2f} of that over pinned, "
        f"{over_swappable:.2f} over swappable pages",
        why="The maximum is flat; the corrected model finds it, see figures 6a and 6b.",
    )


FIGURE = Figure(
    name="xhybridjoin-04",
    paper=PAPER,
    title="Service rate over the sizes of the pinned and the swappable part, memory 50 MB",
    claim="The service rate rises with both parts up to a certain size, and falls beyond it.",
    sweep=Sweep(
        "pinned pages",
        (50, 200, 800, 1600, 3200),
        lambda setting, x: setting.with_(pinned_pages=int(x)),
        is_logarithmic=True,
    ),
    contenders={name_of(pages): TUNED.with_(disk_pages=pages) for pages in SWAPPABLE},
    measure=service_rate,
    verdict=verdict,
)
