"""A driver with settings drawn from a seed, whose joins and loads must give the rows of an oracle.

Arguments: the directory shared by all drivers of the seed, the number of this driver, the seed, and the
cluster if there is one. What was drawn is printed first, so that a failure can be repeated.
"""

import json
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

import adjoin
from adjoin import Master, etl
from adjoin.spark.naming import by_place
from tests.spark.goods import read_batches, write_batches
from tests.spark.programs import session_builder

KEYS = 400
BATCHES = 3
SPECULATION = {
    "spark.speculation": True,
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.executor.memory": "512m",
}
SLOW_SECONDS = 4
IDLE_SECONDS = 70  # idle Python workers die after 60
SHIFTS: dict[str, int] = {"idle": 0, "connect": 1, "drivers": 2, "speculation": 3}
"""Seeds with rare settings: this number modulo five."""
ODD_NAME = "a.`b c`." + "é" * 200

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Settings:
    """The settings drawn from the seed."""

    ansi: bool
    case_sensitive: bool
    adaptive: bool
    worker_reuse: bool
    records_per_batch: int
    large_var_types: bool
    time_zone: str
    cores: int
    shuffle_partitions: int
    key: str
    how: str
    route: str
    algorithm: str
    partitions: int
    fails: bool
    is_slow: bool
    is_idle: bool
    is_connect: bool
    is_speculating: bool
    drivers: int

    @classmethod
    def of(cls, seed: int) -> "Settings":
        random = np.random.default_rng(seed)

        def one(*values: Any) -> Any:
            return values[int(random.integers(len(values)))]

        return cls(
            ansi=one(True, False),
            case_sensitive=one(True, False),
            adaptive=one(True, False),
            worker_reuse=one(True, False),
            records_per_batch=one(1, 7, 1_000_000),
            large_var_types=one(True, False),
            time_zone=one("UTC", "America/St_Johns", "Pacific/Kiritimati", "+05:45"),
            cores=one(1, 2, 30),
            shuffle_partitions=one(1, 2, 200),
            key=one("bigint", "decimal", "string", "timestamp_ntz", "pair"),
            how=one("inner", "left", "semi", "anti"),
            route=one("range", "none"),
            algorithm=one("ssij", "hybridjoin", "meshjoin", "inlj", "ssij+front", "auto"),
            partitions=one(1, 3),
            fails=one(True, False),
            is_slow=one(True, False),
            is_idle=seed % 5 == SHIFTS["idle"],
            is_connect=seed % 5 == SHIFTS["connect"],
            is_speculating=seed % 5 == SHIFTS["speculation"],
            drivers=2 if seed % 5 == SHIFTS["drivers"] else 1,
        )

    def on_spark(self) -> dict[str, str]:
        settings = {
            "spark.sql.ansi.enabled": self.ansi,
            "spark.sql.caseSensitive": self.case_sensitive,
            "spark.sql.adaptive.enabled": self.adaptive,
            "spark.python.worker.reuse": self.worker_reuse,
            "spark.sql.execution.arrow.maxRecordsPerBatch": self.records_per_batch,
            "spark.sql.execution.arrow.useLargeVarTypes": self.large_var_types,
            "spark.sql.session.timeZone": self.time_zone,
            "spark.sql.shuffle.partitions": self.shuffle_partitions,
        }
        if self.is_speculating:
            settings |= SPECULATION
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in settings.items()
        }

    def session(self, cluster: str) -> SparkSession:
        """On the cluster if there is one, else local; Spark speculates only with several hosts."""
        if not self.is_connect:
            return session_builder(cluster or f"local[{self.cores},4]", **self.on_spark()).getOrCreate()
        warnings.simplefilter("ignore")  # what Connect says of static settings
        os.environ["SPARK_TESTING"] = "1"  # lets PySpark choose a free port
        builder = SparkSession.builder.remote(f"local[{self.cores},4]")
        spark = builder.config("spark.connect.grpc.binding.address", "127.0.0.1").getOrCreate()
        for name, value in self.on_spark().items():
            if name != "spark.python.worker.reuse":  # set when Spark starts
                spark.conf.set(name, value)
        return spark


class Data:
    """Keys of the drawn type for masters and streams; the stream's `decimal` is wider than the master's."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    @property
    def names(self) -> list[str]:
        return ["k1", "k2"] if self.kind == "pair" else [ODD_NAME]

    def values(self, numbers: list[int | None]) -> list[tuple[Any, ...]]:
        return [(None,) * len(self.names) if number is None else self._value(number) for number in numbers]

    def _value(self, number: int) -> tuple[Any, ...]:
        if self.kind == "decimal":
            return (Decimal(number) * (10**18 if number >= KEYS else 1),)
        if self.kind == "string":
            return (f"key {number}",)
        if self.kind == "timestamp_ntz":
            return (number * 3_600_000_000 - 86_400_000_000,)
        return (f"shop {number % 7}", number) if self.kind == "pair" else (number,)

    def types(self, *, is_stream: bool) -> list[pa.DataType]:
        if self.kind == "decimal":
            return [pa.decimal128(38, 1) if is_stream else pa.int64()]
        if self.kind == "pair":
            return [pa.string(), pa.int64() if is_stream else pa.int32()]
        plain = {"string": pa.string(), "timestamp_ntz": pa.timestamp("us")}
        return [plain.get(self.kind, pa.int64())]

    def table(self, numbers: list[int | None], *, is_stream: bool, **more: list[Any]) -> pa.Table:
        values = self.values(numbers)
        columns = [
            pa.array([value[at] for value in values], type_)
            for at, type_ in enumerate(self.types(is_stream=is_stream))
        ]
        return pa.table([*columns, *map(pa.array, more.values())], [*self.names, *more])


def numbers_of(seed: int, batch: int, rows: int) -> list[int | None]:
    """Skewed keys; some are in no master, some are null."""
    random = np.random.default_rng([seed, batch])
    drawn = (random.random(rows) ** 2 * KEYS * 1.3).astype(int)
    return [
        None if null else int(number) for number, null in zip(drawn, random.random(rows) < 0.05, strict=True)
    ]


def label(number: int) -> str:
    return f"label {number}"


def has_row(number: int | None) -> bool:
    return number is not None and number < KEYS and number % 3 != 0


def prepare(work: Path, seed: int) -> None:
    """The masters that all drivers of the seed share."""
    data = Data(Settings.of(seed).key)
    known: list[int | None] = [number for number in range(KEYS) if has_row(number)]
    labels = {"Label": [label(number or 0) for number in known]}
    Master.build(
        data.table(known, is_stream=False, **labels), key=data.names, path=work / "master", page_bytes=4096
    )
    schema = pa.schema([("number", pa.int64()), ("key", pa.int64())])
    Master.build(schema.empty_table(), key="number", path=work / "keys").close()


class Load:
    """The work of one driver, and the expected result."""

    def __init__(self, spark: SparkSession, work: Path, driver: int, seed: int) -> None:
        self.spark, self.work, self.driver, self.seed = spark, work, driver, seed
        self.own = work / f"driver {driver}"
        self.settings = Settings.of(seed)
        self.data = Data(self.settings.key)
        self.batches = [
            numbers_of(seed + 1000 * driver, batch, 0 if batch == 1 else 250) for batch in range(BATCHES)
        ]

    def write_input(self, first: int, last: int) -> None:
        """Micro-batches from `first` up to `last`; one of them is empty."""
        tables = []
        for batch, numbers in enumerate(self.batches):
            rows = [batch * 1000 + place for place in range(len(numbers))]
            tables.append(
                self.data.table(
                    numbers,
                    is_stream=True,
                    row=pa.array(rows, pa.int64()),
                    number=pa.array(numbers, pa.int64()),
                )
            )
        write_batches(tables[:last], self.own / "in")

    def join(self, df: DataFrame, **options: Any) -> DataFrame:
        settings = self.settings
        on = self.data.names[0] if len(self.data.names) == 1 else self.data.names
        if settings.fails or settings.is_slow or settings.is_speculating:
            placed = by_place(df)  # Spark splits such names on their way to Python
            seconds = SLOW_SECONDS if settings.is_speculating else 0.3 if settings.is_slow else 0
            fails = settings.fails and not settings.is_speculating
            disturbance = Disturbance(fails, seconds, str(self.own / "attempts"))
            df = placed.mapInArrow(disturbance.pass_on, placed.schema).toDF(*df.columns)
        return adjoin.enrich(
            df,
            self.work / "master",
            on=on,
            how=settings.how,
            route=settings.route,
            algorithm=settings.algorithm,
            partitions=settings.partitions,
            memory="16MB",
            **options,
        )

    def wanted(self, batch: int) -> Counter[tuple[Any, ...]]:
        rows: Rows = []
        for place, number in enumerate(self.batches[batch]):
            row = (batch * 1000 + place,)
            is_matched = has_row(number)
            if self.settings.how in ("inner", "left"):
                if is_matched or self.settings.how == "left":
                    rows.append((*row, label(number or 0) if is_matched else None))
            elif is_matched == (self.settings.how == "semi"):
                rows.append(row)
        return Counter(rows)

    def check_batch(self) -> None:
        static = self.spark.read.parquet(str(self.own / "in"))
        self._compare(
            self.join(static).toArrow(), self.wanted(0) + self.wanted(1) + self.wanted(2), "a batch job"
        )
        if self.settings.how == "left":
            assert self.join(static, columns=[]).columns == static.columns

    def check_streams(self) -> None:
        for first, last in ((0, 1), (1, BATCHES)) if self.settings.is_idle else ((0, BATCHES),):
            self.write_input(first, last)
            if first:
                time.sleep(IDLE_SECONDS)
            joined = self.join(read_batches(self.spark, self.own / "in"))
            writer = joined.writeStream.format("parquet").trigger(availableNow=True)
            writer = writer.option("checkpointLocation", str(self.own / "joined checkpoint"))
            writer.start(str(self.own / "joined")).awaitTermination()
        found = self.spark.read.parquet(str(self.own / "joined")).toArrow()
        self._compare(found, self.wanted(0) + self.wanted(1) + self.wanted(2), "a stream")

    def _compare(self, found: pa.Table, wanted: Counter[tuple[Any, ...]], what: str) -> None:
        names = [name for name in ("row", "Label") if name in found.column_names]
        rows = Counter(zip(*(found[name].to_pylist() for name in names), strict=True))
        assert rows == wanted, f"{what}: too many {rows - wanted}, missing {wanted - rows}"

    def check_load(self) -> None:
        """Deduplicate keys and issue surrogates in foreachBatch; two drivers share the surrogates."""
        seen = pa.schema([("number", pa.int64()), ("seen_in", pa.int64())])
        Master.build(seen.empty_table(), key="number", path=self.own / "seen").close()
        body = load_body(str(self.work / "keys"), str(self.own), self.settings.route, self.driver)
        writer = (
            read_batches(self.spark, self.own / "in")
            .writeStream.foreachBatch(body)
            .trigger(availableNow=True)
        )
        writer.option("checkpointLocation", str(self.own / "load checkpoint")).start().awaitTermination()
        issued: dict[int, int] = {}
        known: set[int] = set()
        for batch, numbers in enumerate(self.batches):
            rows = pq.read_table(self.own / "loaded" / str(batch)).to_pylist()
            firsts = {
                number: place for place, number in reversed(list(enumerate(numbers))) if number is not None
            }
            wanted = {place + batch * 1000 for number, place in firsts.items() if number not in known}
            wanted |= {place + batch * 1000 for place, number in enumerate(numbers) if number is None}
            assert {row["row"] for row in rows} == wanted, f"batch {batch} of the load"
            issued |= {row["number"]: row["key"] for row in rows if row["number"] is not None}
            known |= firsts.keys()
        assert len(set(issued.values())) == len(issued), "two keys have the same surrogate"
        (self.own / "issued.json").write_text(json.dumps(issued))


def load_body(keys: str, own: str, route: str, driver: int) -> Any:
    """Uses only plain values, because on Connect it runs in another process."""

    def load(df: DataFrame, batch_id: int) -> None:
        options: dict[str, Any] = {"memory": "16MB", "partitions": 2, "route": route}
        df = df.select("row", "number")
        rows = etl.deduplicate(
            df,
            f"{own}/seen",
            on="number",
            order_by="row",
            ttl=50,
            time="seen_in",
            txn=("seen", batch_id),
            **options,
        )
        rows = etl.surrogate_keys(
            rows,
            keys,
            on="number",
            key="key",
            keep_natural=True,
            txn=(f"driver {driver}", batch_id),
            **options,
        )
        rows.write.mode("overwrite").parquet(f"{own}/loaded/{batch_id}")

    return load


@dataclass(frozen=True)
class Disturbance:
    """The first attempt at some tasks fails in the middle of its rows; some tasks are slow."""

    fails: bool
    slow_seconds: float
    attempts: str

    def pass_on(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        is_first = context.attemptNumber() == 0 and context.partitionId() == 0
        with open(self.attempts, "a", encoding="ascii") as file:
            file.write(f"{context.attemptNumber()}\n")
        if self.slow_seconds and is_first:
            time.sleep(self.slow_seconds)
        for batch in batches:
            yield batch
            if self.fails and is_first:
                raise RuntimeError("as planned")


def run(work: Path, driver: int, seed: int, cluster: str = "") -> None:
    settings = Settings.of(seed)
    print(f"seed {seed}, driver {driver}: {asdict(settings)}", flush=True)
    spark = settings.session(cluster)
    try:
        load = Load(spark, work, driver, seed)
        load.check_streams()
        load.check_batch()
        load.check_load()
        if (load.own / "attempts").exists():
            print(Counter((load.own / "attempts").read_text().split()), "attempts by number", flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
