"""A figure: who is compared, over which sweep, what the paper claims, and whether it holds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Generic, TypeVar

Setting = TypeVar("Setting")

SIMULATED, REAL = "simulated", "real"
DEVICES = {SIMULATED: "simulated disk", REAL: "disk of a present-day machine"}


@dataclass(frozen=True)
class World:
    """Where and how large figures are measured.

    Attributes:
        scale: The factor by which master, stream and memory are smaller than the paper's.
        data: Where masters are kept.
        seed: The seed of all random numbers.
        is_real: Measure on this machine's disk and clock instead of the simulated ones.
    """

    scale: int
    data: Path
    seed: int = 1
    is_real: bool = False

    def scaled(self, size: float) -> int:
        """A size in the paper, at this scale."""
        return max(1, round(size / self.scale))


@dataclass(frozen=True)
class Measurement:
    """One point of a curve: its value, and metrics that explain it."""

    value: float
    details: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Sweep(Generic[Setting]):
    """The quantity varied: name, values, the setting at a value, and whether its axis is logarithmic."""

    label: str
    values: tuple[float, ...]
    at: Callable[[Setting, float], Setting]
    is_logarithmic: bool = False


@dataclass(frozen=True)
class Verdict:
    """Whether the claim holds here, the number that shows it, and the reason if it does not."""

    holds: bool
    number: str
    why: str = ""

    def __post_init__(self) -> None:
        if not self.holds and not self.why:
            raise ValueError(f"a claim that does not hold needs a reason: {self.number}")


@dataclass(frozen=True)
class Paper:
    """A paper whose figures are measured again.

    Attributes:
        name: The prefix of its figures' names.
        citation: Authors, title, place and year.
        scale: The default factor by which its sizes are divided.
        setting: What was taken from the paper, and what the scale changes.
    """

    name: str
    citation: str
    scale: int
    setting: str


class Curves:
    """The values of every contender over the sweep.

    >>> curves = Curves((0.0, 1.0), {"ssij": (10.0, 40.0), "meshjoin": (20.0, 20.0)})
    >>> curves.growth("ssij")
    4.0
    >>> curves.ratios("ssij", "meshjoin")
    (0.5, 2.0)
    >>> curves.at("ssij", 1.0)
    40.0
    """

    def __init__(self, x: Sequence[float], values: Mapping[str, Sequence[float]]) -> None:
        self.x = tuple(x)
        self._values = {name: tuple(curve) for name, curve in values.items()}

    def __getitem__(self, contender: str) -> tuple[float, ...]:
        return self._values[contender]

    def at(self, contender: str, x: float) -> float:
        """The value at a point of the sweep."""
        return self._values[contender][self.x.index(x)]

    def growth(self, contender: str) -> float:
        """The ratio of the last value to the first."""
        curve = self._values[contender]
        return curve[-1] / curve[0]

    def ratios(self, contender: str, other: str) -> tuple[float, ...]:
        """The ratios of one contender's values to another's."""
        pairs = zip(self._values[contender], self._values[other], strict=True)
        return tuple(mine / theirs for mine, theirs in pairs)

    def is_rising(self, contender: str, slack: float = 0.03) -> bool:
        """Whether no value is lower than the one before, within the tolerance of bisection."""
        curve = self._values[contender]
        return all(later >= (1 - slack) * before for before, later in pairwise(curve))


@dataclass(frozen=True)
class Figure(Generic[Setting]):
    """A figure of a paper.

    Attributes:
        name: Paper and number, such as "ssij-03".
        paper: The paper.
        title: What the figure shows.
        claim: What the paper says.
        sweep: What is varied along the x axis.
        contenders: The setting of every curve, by the name of the curve.
        measure: Measures one point.
        verdict: Judges the claim, from the stored results alone.
        unit: The unit of the values.
        devices: What it is measured on; the verdict is about the first of them.
        is_logarithmic: Whether the y axis is logarithmic.
    """

    name: str
    paper: Paper
    title: str
    claim: str
    sweep: Sweep[Setting]
    contenders: Mapping[str, Setting]
    measure: Callable[[Setting, World], Measurement]
    verdict: Callable[[Curves], Verdict]
    unit: str = "stream rows per second"
    devices: tuple[str, ...] = (SIMULATED,)
    is_logarithmic: bool = False
