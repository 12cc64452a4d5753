"""Inputs for demo, tests and benchmarks: a seed fixes the rows, whatever the sizes in which they are read."""

from adjoin.workloads.arrivals import Arrivals, ConstantRate, ExponentialGaps, SelfSimilarBursts
from adjoin.workloads.bursty import BurstyArrivals
from adjoin.workloads.locality import ShiftingZipf
from adjoin.workloads.zipf import Zipf

__all__ = [
    "Arrivals",
    "BurstyArrivals",
    "ConstantRate",
    "ExponentialGaps",
    "SelfSimilarBursts",
    "ShiftingZipf",
    "Zipf",
]
