"""Inputs for demo, tests and benchmarks: a seed fixes the rows, whatever the sizes in which they are read.

Keys: `Zipf`, and `ShiftingZipf` with another part of the keys in every period; `NormalKeys` around a mean
that may move, `MeanRevertingWalk` for prices and temperatures, `partly_sorted` keys of any of them.
Rows: `Records` around keys, `MasterRows` for masters of any size.
Arrival times: `ConstantRate`, `ExponentialGaps`, `SelfSimilarBursts`, which are `Arrivals`, and `Fragments`
of them with silences between; `BurstyArrivals` counts the rows of each step instead.
Pairs of master and stream: `TPCH` and `CloudReports`.
"""

from adjoin.workloads.arrivals import Arrivals, ConstantRate, ExponentialGaps, Fragments, SelfSimilarBursts
from adjoin.workloads.bursty import BurstyArrivals
from adjoin.workloads.clouds import CloudReports
from adjoin.workloads.locality import ShiftingZipf
from adjoin.workloads.masters import MasterRows
from adjoin.workloads.normal import NormalKeys
from adjoin.workloads.partlysorted import partly_sorted
from adjoin.workloads.records import Records
from adjoin.workloads.tpch import TPCH
from adjoin.workloads.walk import MeanRevertingWalk
from adjoin.workloads.zipf import Zipf

__all__ = [
    "TPCH",
    "Arrivals",
    "BurstyArrivals",
    "CloudReports",
    "ConstantRate",
    "ExponentialGaps",
    "Fragments",
    "MasterRows",
    "MeanRevertingWalk",
    "NormalKeys",
    "Records",
    "SelfSimilarBursts",
    "ShiftingZipf",
    "Zipf",
    "partly_sorted",
]
