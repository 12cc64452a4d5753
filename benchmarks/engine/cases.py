"""What is measured, on how much data, and the goals."""

from dataclasses import dataclass

from adjoin.memory.budget import parse_bytes

STORES = ("lmdb", "duckdb", "sqlite")
OURS = ("ssij streaming", "ssij drained")


@dataclass(frozen=True)
class Case:
    """One workload on which contenders are compared."""

    goal: str
    stream: str
    batch_rows: int
    master_rows: int
    memory_bytes: int
    cap_bytes: int | None
    contenders: tuple[str, ...]
    filtered: bool = False

    @property
    def name(self) -> str:
        return f"{self.goal}, {self.stream}, {self.batch_rows}"


@dataclass(frozen=True)
class Goal:
    """A ratio that SSIJ must reach against the best rival, or against itself on another stream."""

    title: str
    least_ratio: float
    rivals: tuple[str, ...] = ()
    rival_stream: str = ""


@dataclass(frozen=True)
class Effort:
    """How long one process runs: rows and seconds of warm-up, rows and seconds measured."""

    warm_rows: int
    warm_seconds: float
    rows: int
    seconds: float
    least_batches: int = 5
    most_seconds: float = 120

    def spent(self, seconds: float, batches: int) -> bool:
        """Whether a contender had enough time; a slow one gets more, for a minimum of batches."""
        return seconds > self.most_seconds or (seconds > self.seconds and batches >= self.least_batches)


GOALS = {
    "small": Goal("batches of 10,000: at least 5 x the best store", 5.0, STORES),
    "large": Goal("batches of 500,000: no slower than the best store", 1.0, STORES),
    "cached": Goal("everything cached: at least half of Polars in memory", 0.5, ("polars",)),
    "absent": Goal(
        "90 % of the keys absent: at least 0.8 x the speed with all present", 0.8, rival_stream="exist"
    ),
}
FULL_EFFORT = Effort(warm_rows=4_000_000, warm_seconds=25, rows=5_000_000, seconds=10, most_seconds=45)
QUICK_EFFORT = Effort(warm_rows=40_000, warm_seconds=2, rows=40_000, seconds=1, least_batches=2)


def full_cases() -> tuple[Case, ...]:
    """The full-size cases."""
    return _cases(20_000_000, "128MB", "512MB", 4_000_000, "1GB", small=10_000, large=500_000)


def quick_cases() -> tuple[Case, ...]:
    """Every goal on a hundredth of the data; the cap must leave room for the interpreter."""
    cases = _cases(200_000, "8MB", "448MB", 40_000, "32MB", small=1_000, large=10_000)
    return tuple(case for case in cases if case.batch_rows == 1_000 or case.goal == "large")


def _cases(
    master_rows: int, memory: str, cap: str, cached_rows: int, cached_memory: str, small: int, large: int
) -> tuple[Case, ...]:
    capped = (master_rows, parse_bytes(memory), parse_bytes(cap))
    free = (cached_rows, parse_bytes(cached_memory), None)
    return (
        Case("small", "exist", small, *capped, (*OURS, *STORES)),
        Case("large", "exist", large, *capped, (*OURS, *STORES)),
        Case("cached", "exist", small, *free, (*OURS, "polars")),
        Case("cached", "exist", large, *free, (*OURS, "polars")),
        Case("absent", "exist", small, *capped, OURS, filtered=True),
        Case("absent", "absent", small, *capped, OURS, filtered=True),
        Case("absent", "exist", large, *capped, OURS, filtered=True),
        Case("absent", "absent", large, *capped, OURS, filtered=True),
    )
