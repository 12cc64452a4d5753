"""Results over time, for one source of keys or another."""

from benchmarks.figures.diner.leads import leading
from benchmarks.figures.diner.measures import results_online
from benchmarks.figures.diner.setting import PAPER, Setting, Source, contenders
from benchmarks.figures.figure import Figure, Sweep

_OTHERS = ("RPJ", "HMJ", "XJoin")
_WHY = (
    "The walk is slow: the most recent tuples are those that match next, and every join keeps them for a "
    "while."
)


def over_time(name: str, source: Source, what: str) -> Figure[Setting]:
    """The figure with this name, for these keys."""
    return Figure(
        name=name,
        paper=PAPER,
        title=f"Results while {what} arrive",
        claim="DINER produces results at a much higher rate than RPJ, HMJ and XJoin, throughout.",
        sweep=Sweep(
            "arrived, % of the input",
            (20, 40, 60, 80, 100),
            lambda setting, x: setting.with_(arrived=x / 100),
        ),
        contenders=contenders(Setting(source=source), "DINER", *_OTHERS),
        measure=results_online,
        verdict=leading(_WHY, _OTHERS, at_least=1.2),
        unit="thousand results",
    )
