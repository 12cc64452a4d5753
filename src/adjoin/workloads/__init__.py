"""Inputs for demo, tests and benchmarks: a seed fixes the rows, whatever the sizes in which they are read."""

from adjoin.workloads.bursty import BurstyArrivals
from adjoin.workloads.locality import ShiftingZipf
from adjoin.workloads.zipf import Zipf

__all__ = [
    "BurstyArrivals",
    "ShiftingZipf",
    "Zipf",
]
