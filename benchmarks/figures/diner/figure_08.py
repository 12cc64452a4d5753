"""Results over time, the temperatures of two stations."""

from benchmarks.figures.diner.overtime import over_time
from benchmarks.figures.diner.sources import WEATHER

FIGURE = over_time("diner-08", WEATHER, "the temperatures of two stations")
