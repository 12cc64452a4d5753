"""Inputs for demo, tests and benchmarks: the seed determines the rows, whatever the batch sizes.

Keys: `Zipf`, and `ShiftingZipf`, which moves to other keys in every period; `NormalKeys` around a mean
that may move, `MeanRevertingWalk` for prices and temperatures, `partly_sorted` keys of any of them.
Rows: `Records` around keys, `MasterRows` for masters of any size.
Arrival times: `ConstantRate`, `ExponentialGaps`, `SelfSimilarBursts`, which are `Arrivals`, and `Fragments`
of these with pauses in between; `BurstyArrivals` counts the rows per step instead.
Pairs of master and stream: `TPCH` and `CloudReports`.
"""

from workloads.arrivals import Arrivals, ConstantRate, ExponentialGaps, Fragments, SelfSimilarBursts
from workloads.bursty import BurstyArrivals
from workloads.clouds import CloudReports
from workloads.locality import ShiftingZipf
from workloads.masters import MasterRows
from workloads.normal import NormalKeys
from workloads.partlysorted import partly_sorted
from workloads.records import Records
from workloads.tpch import TPCH
from workloads.walk import MeanRevertingWalk
from workloads.zipf import Zipf

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
