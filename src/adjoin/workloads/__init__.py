"""Inputs for demo, tests and benchmarks: a seed fixes the rows, whatever the sizes in which they are read."""

from adjoin.workloads.arrivals import Arrivals, ConstantRate, ExponentialGaps, SelfSimilarBursts
from adjoin.workloads.bursty import BurstyArrivals
from adjoin.workloads.clouds import CloudReports
from adjoin.workloads.locality import ShiftingZipf
from adjoin.workloads.masters import MasterRows
from adjoin.workloads.records import Records
from adjoin.workloads.zipf import Zipf

__all__ = [
    "Arrivals",
    "BurstyArrivals",
    "CloudReports",
    "ConstantRate",
    "ExponentialGaps",
    "MasterRows",
    "Records",
    "SelfSimilarBursts",
    "ShiftingZipf",
    "Zipf",
]
