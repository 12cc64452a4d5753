"""What is measured, on how much data, and the goals."""

from dataclasses import dataclass, replace

from benchmarks.streamjoin_spark.shapes import BOUND_SECONDS, DELAY_SECONDS, ROW_BYTES, SHAPES, Shape

OURS, OURS_MANY = "adjoin.join", "adjoin.join_all"
SPARK_ROCKSDB = ("spark rocksdb v2", "spark rocksdb v4")
SPARK_OWN = (*SPARK_ROCKSDB, "spark in memory")
CELLS = "spark cells"
FLINK = ("flink interval join", "flink regular join")
EQUALITY = (OURS, *SPARK_OWN)
ALL = (OURS, OURS_MANY, *SPARK_OWN, CELLS, *FLINK)

_AMPLE_BYTES = 512 << 20


@dataclass(frozen=True)
class Case:
    """One workload on which contenders are compared.

    Attributes:
        setting: The section of the page that it belongs to.
        shape: One of `SHAPES`.
        keys: How the values that are joined are distributed.
        batch_rows: Rows of each input and micro-batch.
        batch_seconds: The event time that a micro-batch covers.
        warm_batches: Micro-batches that do not count: until state is full, and code compiled.
        batches: Micro-batches that count.
        contenders: Who takes part.
        memory_share: What our join gets of the steady state's bytes; everything fits if 0.
    """

    setting: str
    shape: str
    keys: str
    batch_rows: int
    batch_seconds: int
    warm_batches: int
    batches: int
    contenders: tuple[str, ...]
    memory_share: float = 0.0

    @property
    def name(self) -> str:
        """A short name, unique within its setting."""
        return f"{self.shape}, {self.keys}"

    @property
    def join(self) -> Shape:
        """What is joined."""
        return SHAPES[self.shape]

    @property
    def all_batches(self) -> int:
        """Micro-batches in all."""
        return self.warm_batches + self.batches

    @property
    def state_rows(self) -> int:
        """Rows that are kept at the end: the watermark is one micro-batch, and its delay, behind."""
        inputs = len(self.join.inputs)
        if not self.join.times:
            return inputs * self.all_batches * self.batch_rows
        lag_seconds = self.batch_seconds + DELAY_SECONDS
        return round((BOUND_SECONDS + 2 * lag_seconds) / self.batch_seconds * self.batch_rows)

    @property
    def memory_bytes(self) -> int:
        """What our join gets."""
        return round(self.memory_share * self.state_rows * ROW_BYTES) or _AMPLE_BYTES


@dataclass(frozen=True)
class Goal:
    """A promise: the fastest of `others` takes at least `bound` times as long as ours."""

    setting: str
    bound: float
    ours: str = OURS
    others: tuple[str, ...] = SPARK_OWN


SETTINGS = {
    "large": "micro-batches of 200,000 rows a side, state fits in memory",
    "medium": "micro-batches of 20,000 rows a side, state fits in memory",
    "small": "micro-batches of 2,000 rows a side, state fits in memory",
    "state": "state of ten times the memory, micro-batches of 100,000 rows a side",
    "band": "band join with a time bound",
    "range": "range join, without and with 1 % of very long intervals",
    "chain": "chain of four",
}
GOALS = (
    Goal("large", 5.0),
    Goal("medium", 2.5),
    Goal("small", 1.0),
    Goal("state", 3.0),
    Goal("band", 1.0, others=(CELLS,)),
    Goal("range", 1.0, others=(CELLS,)),
    Goal("chain", 4.0, ours=OURS_MANY, others=SPARK_ROCKSDB),
)


def full_cases() -> tuple[Case, ...]:
    """The cases of the full size."""
    quarter, pair, chained = 900, (OURS, CELLS), (OURS_MANY, *SPARK_ROCKSDB)
    return (
        Case("large", "equality", "random", 200_000, quarter, 7, 6, (*EQUALITY, *FLINK)),
        Case("medium", "equality", "random", 20_000, quarter, 14, 14, EQUALITY),
        Case("small", "equality", "random", 2_000, quarter, 40, 40, EQUALITY),
        Case("state", "equality", "random", 100_000, 180, 25, 7, (*EQUALITY, *FLINK), memory_share=0.1),
        Case("state", "equality", "growing", 100_000, 180, 25, 7, (*EQUALITY, *FLINK), memory_share=0.1),
        Case("band", "band", "random", 20_000, quarter, 10, 10, pair),
        Case("range", "range", "short", 20_000, quarter, 10, 10, pair),
        Case("range", "range", "1 % long", 20_000, quarter, 10, 10, pair),
        Case("chain", "chain", "random", 20_000, quarter, 10, 10, chained),
    )


def smoke_cases() -> tuple[Case, ...]:
    """Every contender and every shape once, on tiny data, some of which expires."""
    chosen = {each.shape: each for each in reversed(full_cases())}
    return tuple(
        replace(each, batch_rows=500, batch_seconds=1800, warm_batches=2, batches=2)
        for each in chosen.values()
    )
