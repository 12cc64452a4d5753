"""Cut the rows of a DataFrame into ranges of encoded keys, one per task.

Keys are read twice: a survey counts rows and draws a sample that yields the cuts between ranges; then each
row gets the number of its range and is sent there. Spark's own range partitioning would work for some key
types but not for all, and not where cuts must fall between pages.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql.types import IntegerType, StructField, StructType

from adjoin.keys.casts import cast_column
from adjoin.keys.codec import KeyCodec
from adjoin.spark.jobs import run
from adjoin.spark.types import from_spark

PART_COLUMN = "_adjoin_part"
_SAMPLED_KEYS = 4096  # per partition
_MOST_TASKS = 512


@dataclass(frozen=True)
class Encoder:
    """Encodes the keys of batches that came from Spark.

    Attributes:
        codec: How keys are encoded.
        schema: The master's columns.
        names: The columns of the batches, which Spark knows by position only.
    """

    codec: KeyCodec
    schema: pa.Schema
    names: Sequence[str]

    def encode(self, batch: pa.RecordBatch) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
        """As `KeyCodec.encode`."""
        keys = batch.select([self.names.index(name) for name in self.codec.columns])
        keys = from_spark(keys.rename_columns(list(self.codec.columns)), self.schema)
        fields = [self.schema.field(name).with_nullable(True) for name in self.codec.columns]
        return self.codec.encode(
            [cast_column(field.name, keys.column(field.name), field) for field in fields]
        )


@dataclass(frozen=True)
class Survey:
    """What is known about the rows before they are sent.

    Attributes:
        rows: The number of rows.
        null_rows: The number of rows with a null key.
        bytes: Their size in Arrow.
        sample: Some keys that are not null.
        weights: How many rows each of them represents.
    """

    rows: int
    null_rows: int
    bytes: int
    sample: NDArray[np.int64]
    weights: NDArray[np.float64]

    def cuts(self, parts: int) -> NDArray[np.int64]:
        """First keys of all parts but the first, with about the same rows each; fewer if keys repeat."""
        order = np.argsort(self.sample)
        reached = np.cumsum(self.weights[order])
        if len(reached) == 0:
            return np.empty(0, np.int64)
        wanted = reached[-1] * np.arange(1, parts) / parts
        return np.unique(self.sample[order][np.searchsorted(reached, wanted)])


def survey(df: DataFrame, encoder: Encoder) -> Survey:
    """Survey all keys, with one task per partition."""

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[Survey]:
        yield _survey_part(batches, encoder)

    parts: list[Survey] = run(df, look)
    return Survey(
        rows=sum(part.rows for part in parts),
        null_rows=sum(part.null_rows for part in parts),
        bytes=sum(part.bytes for part in parts),
        sample=np.concatenate([np.empty(0, np.int64), *(part.sample for part in parts)]),
        weights=np.concatenate([np.empty(0), *(part.weights for part in parts)]),
    )


def _survey_part(batches: Iterator[pa.RecordBatch], encoder: Encoder) -> Survey:
    random = np.random.default_rng(0)
    rows = valid_rows = size = 0
    sample, draws = np.empty(0, np.int64), np.empty(0)
    for batch in batches:
        keys, valid = encoder.encode(batch)
        keys = keys if valid is None else keys[valid]
        rows += batch.num_rows
        valid_rows += len(keys)
        size += batch.nbytes
        # The keys with the lowest random numbers are a uniform sample, however many keys there are.
        sample, draws = np.concatenate([sample, keys]), np.concatenate([draws, random.random(len(keys))])
        if len(draws) > _SAMPLED_KEYS:
            lowest = np.argpartition(draws, _SAMPLED_KEYS)[:_SAMPLED_KEYS]
            sample, draws = sample[lowest], draws[lowest]
    weights = np.full(len(sample), valid_rows / max(1, len(sample)))
    return Survey(rows, rows - valid_rows, size, sample, weights)


def task_count(rows: int, rows_per_task: int) -> int:
    """Tasks for this many rows, up to a limit above which each gets more rows."""
    return max(1, min(_MOST_TASKS, -(-rows // rows_per_task)))


def send(df: DataFrame, encoder: Encoder, cuts: NDArray[np.int64]) -> DataFrame:
    """The rows with the number of their part as last column; every part has its own partition.

    Part i has the keys from ``cuts[i - 1]`` up to but excluding ``cuts[i]``.
    """
    part_field = StructField(PART_COLUMN, IntegerType(), False)

    def number(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            keys, _ = encoder.encode(batch)
            parts = np.searchsorted(cuts, keys, "right").astype(np.int32)
            yield batch.append_column(PART_COLUMN, pa.array(parts))

    numbered = df.mapInArrow(number, StructType([*df.schema, part_field]))
    return numbered.repartitionById(len(cuts) + 1, numbered[PART_COLUMN])
