"""How often products are sold."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from benchmarks.figures.figure import Curves, Figure, Measurement, Sweep, Verdict, World
from benchmarks.figures.hybridjoin.setting import PAPER
from workloads import Zipf

_PRODUCTS = 2_000_000
_SALES = 4_000_000


@dataclass(frozen=True)
class Sales:
    """Sales of the `percent` most frequent products, in one form of Zipf's law."""

    form: Literal["continuous", "discrete"]
    percent: float = 0.0


def share_of_sales(sales: Sales, world: World) -> Measurement:
    """The share of all sales, in percent."""
    keys = Zipf(_PRODUCTS, form=sales.form, seed=world.seed).draw(_SALES)
    return Measurement(100 * float(np.mean(keys < sales.percent / 100 * _PRODUCTS)))


def verdict(curves: Curves) -> Verdict:
    """A fifth of the products accounts for at least four fifths of the sales."""
    share = curves.at("form of the paper", 20)
    return Verdict(
        holds=share > 80,
        number=f"20 % of the products make {share:.0f} % of the sales (Zipf's law itself: "
        f"{curves.at('sum', 20):.0f} %), 1 % make {curves.at('form of the paper', 1):.0f} %",
        why="An exponent of 1 is more skewed than the 80/20 rule that the paper aims at.",
    )


FIGURE = Figure(
    name="hybridjoin-08",
    paper=PAPER,
    title="Sales of the most frequent products, 2 million products",
    claim="Only a limited number of products (20 %) are sold frequently, the rest rarely.",
    sweep=Sweep(
        "products, %",
        (0.01, 0.1, 1, 5, 20, 50, 100),
        lambda sales, x: replace(sales, percent=x),
        is_logarithmic=True,
    ),
    contenders={"form of the paper": Sales("continuous"), "sum": Sales("discrete")},
    measure=share_of_sales,
    verdict=verdict,
    unit="% of the sales",
)
