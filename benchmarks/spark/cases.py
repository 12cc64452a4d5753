"""What is measured, on how much data, and the goals."""

from dataclasses import dataclass

from benchmarks.engine import workload
from workloads.zipf import Placement

OURS = "enrich"
SPARK_BROADCAST = "spark broadcast stream"
SPARK_OWN = (SPARK_BROADCAST, "spark sort-merge")
IDENTITY = "identity"
ROUTED = "identity routed"
STORES = ("duckdb", "duckdb routed", "lmdb")
ALL = (OURS, *SPARK_OWN, "spark cached master", *STORES, ROUTED, IDENTITY)
MEMORY_SHARE = 0.05


@dataclass(frozen=True)
class Effort:
    """How many micro-batches are run, and the seconds after which a slow contender may stop."""

    warm_batches: int
    warm_seconds: float
    batches: int
    seconds: float
    least_batches: int

    @property
    def most_batches(self) -> int:
        return self.warm_batches + self.batches

    def measured(self, seconds: list[float]) -> range | None:
        """The batches that count, given the time of each; None while more must be run."""
        start = next((at for at in range(len(seconds)) if self._is_warm(seconds[:at])), None)
        if start is None:
            return None
        for end in range(start + 1, len(seconds) + 1):
            if self._is_enough(seconds[start:end]):
                return range(start, end)
        return None

    def _is_warm(self, seconds: list[float]) -> bool:
        return len(seconds) >= self.warm_batches or sum(seconds) >= self.warm_seconds

    def _is_enough(self, seconds: list[float]) -> bool:
        if len(seconds) >= self.batches:
            return True
        return len(seconds) >= self.least_batches and sum(seconds) >= self.seconds


@dataclass(frozen=True)
class Case:
    """One workload on which contenders are compared."""

    setting: str
    name: str
    master_rows: int
    batch_rows: int
    effort: Effort
    contenders: tuple[str, ...]
    placement: Placement = "random"
    partitions: int = 2
    tasks_timed: bool = False

    @property
    def memory_bytes(self) -> int:
        return max(_LEAST_MEMORY_BYTES, int(self.master_rows * workload.ROW_BYTES * MEMORY_SHARE))


@dataclass(frozen=True)
class Side:
    """One side of a ratio: the fastest of some contenders in one case."""

    case: str
    contenders: tuple[str, ...]


@dataclass(frozen=True)
class Goal:
    """A promise: `over` divided by `under` must be at least, or at most, the bound."""

    setting: str
    title: str
    over: Side
    under: Side | None
    bound: float
    at_least: bool = False
    measures: tuple[str, ...] = ("add_batch_seconds", "trigger_seconds")

    def is_reached(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound


_LEAST_MEMORY_BYTES = 8 << 20  # the smoke test's master is smaller than the operator's fixed parts
_BALANCE = (2, 4, 8)

SETTINGS = {
    "small": "micro-batches of 10,000 rows",
    "large": "micro-batches of 500,000 rows",
    "cold": "first micro-batch of a fresh application",
    "growth": "the master grows from 20 to 100 million rows",
    "balance": "adjacent hot keys: how evenly tasks are loaded",
}

GOALS = (
    Goal("small", "at least 8 x faster than Spark's own join", Side("batches", SPARK_OWN),
         Side("batches", (OURS,)), 8.0, at_least=True),
    Goal("small", "at most 2 x the routed identity", Side("batches", (OURS,)),
         Side("batches", (ROUTED,)), 2.0),
    Goal("large", "at least 3 x faster than Spark's own join", Side("batches", SPARK_OWN),
         Side("batches", (OURS,)), 3.0, at_least=True),
    Goal("cold", "at most 1.5 x the routed identity", Side("first batch", (OURS,)),
         Side("first batch", (ROUTED,)), 1.5),
    Goal("cold", "at most 1.5 x the identity without routing", Side("first batch", (OURS,)),
         Side("first batch", (IDENTITY,)), 1.5),
    Goal("growth", "at most 1.5 x on the larger master", Side("grown", (OURS,)), Side("base", (OURS,)), 1.5),
    Goal("growth", "first batch on the larger master: at most 1.5 x the routed identity",
         Side("grown, first batch", (OURS,)), Side("grown, first batch", (ROUTED,)), 1.5),
    *(
        Goal("balance", "slowest task at most 2 x the median", Side(f"{n} partitions", (OURS,)), None, 2.0,
             measures=("slowest_to_median",))
        for n in _BALANCE
    ),
)  # fmt: skip


def full_cases() -> tuple[Case, ...]:
    """The full-size cases."""
    return _cases(
        20_000_000,
        100_000_000,
        10_000,
        500_000,
        small_effort=Effort(60, 20, 60, 12, 5),
        large_effort=Effort(6, 20, 10, 15, 3),
    )


def smoke_cases() -> tuple[Case, ...]:
    """Every contender and every kind of case once, on tiny data."""
    effort = Effort(1, 60, 2, 60, 2)
    cases = _cases(20_000, 40_000, 500, 500, small_effort=effort, large_effort=effort)
    return tuple(case for case in cases if case.setting == "small" or case.name == "4 partitions")


def _cases(
    rows: int, grown_rows: int, small: int, large: int, small_effort: Effort, large_effort: Effort
) -> tuple[Case, ...]:
    first, pair = Effort(0, 0, 1, 0, 1), (OURS, SPARK_BROADCAST)
    return (
        Case("small", "batches", rows, small, small_effort, ALL),
        Case("large", "batches", rows, large, large_effort, ALL),
        Case("cold", "first batch", rows, small, first, (OURS, ROUTED, IDENTITY)),
        Case("growth", "base", rows, small, small_effort, pair),
        Case("growth", "grown", grown_rows, small, small_effort, pair),
        Case("growth", "grown, first batch", grown_rows, small, first, (OURS, ROUTED)),
        *(
            Case("balance", f"{n} partitions", rows, large, large_effort, (OURS, ROUTED), "noperm", n, True)
            for n in _BALANCE
        ),
    )
