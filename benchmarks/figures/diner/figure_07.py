"""Results over time, stock prices."""

from benchmarks.figures.diner.overtime import over_time
from benchmarks.figures.diner.sources import CSCO

FIGURE = over_time("diner-07", CSCO, "the prices of a stock")
