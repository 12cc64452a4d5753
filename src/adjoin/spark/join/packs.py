"""Packs: the rows of one side that go to one bucket, as the bytes of a record batch.

A pack has an origin, by which the packs of a bucket are ordered alike whenever a micro-batch is repeated.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, ByteType, IntegerType, LongType, StructField, StructType

from adjoin.arrow.copying import plain_columns, take_rows
from adjoin.kernels.sorting import argsort_keys
from adjoin.spark.join.buckets import Routing

PACK_SCHEMA = StructType(
    [
        StructField("bucket", IntegerType()),
        StructField("side", ByteType()),
        StructField("origin", LongType()),
        StructField("rows", LongType()),
        StructField("data", BinaryType()),
    ]
)
_MOST_BYTES = 8 << 20
"""A larger pack is divided: Spark holds each one whole in memory several times."""


@dataclass(frozen=True)
class Packer:
    """What a Spark task does with the rows of one side: it packs them by bucket.

    Every bucket gets at least an empty pack, so that all of them see every micro-batch with its watermark.

    Attributes:
        side: The side.
        schema: Its columns, with their names; Spark names them by position.
        routing: Tells the buckets of each row.
        bucket_keys: The key by which Spark groups the packs of each bucket.
        packed: The columns of packs, in the types in which Spark takes them.
    """

    side: int
    schema: pa.Schema
    routing: Routing
    bucket_keys: tuple[int, ...]
    packed: pa.Schema

    def pack(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The function that Spark runs on every partition."""
        context = TaskContext.get()
        origin = itertools.count((context.partitionId() if context else 0) << 32)
        yield self._packed([(bucket, 0, b"") for bucket in range(len(self.bucket_keys))], origin)
        for batch in batches:
            named = pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)
            for packs in self._portions(named):
                yield self._packed(packs, origin)

    def _portions(self, batch: pa.RecordBatch) -> Iterator[list[tuple[int, int, bytes]]]:
        """The packs of a batch, about as many bytes at a time as a pack may have."""
        rows = max(1, batch.num_rows * _MOST_BYTES // max(batch.nbytes, 1))
        for begin in range(0, batch.num_rows, rows):
            yield list(self._packs(batch.slice(begin, rows)))

    def _packs(self, batch: pa.RecordBatch) -> Iterator[tuple[int, int, bytes]]:
        row, bucket = self.routing.buckets(self.side, plain_columns(batch))
        order = argsort_keys(bucket)
        sent = take_rows(batch, row[order])
        ends = np.searchsorted(bucket[order], np.arange(len(self.bucket_keys)), "right")
        begin = 0
        for number, end in enumerate(ends.tolist()):
            if end > begin:
                yield number, end - begin, sent.slice(begin, end - begin).serialize().to_pybytes()
            begin = end

    def _packed(self, packs: list[tuple[int, int, bytes]], origin: Iterator[int]) -> pa.RecordBatch:
        columns = [
            [self.bucket_keys[bucket] for bucket, _, _ in packs],
            [self.side] * len(packs),
            list(itertools.islice(origin, len(packs))),
            [rows for _, rows, _ in packs],
            [data for _, _, data in packs],
        ]
        typed = zip(columns, self.packed.types, strict=True)
        return pa.record_batch([pa.array(values, type_) for values, type_ in typed], schema=self.packed)


def unpacked(data: bytes | memoryview, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of a pack."""
    return pa.ipc.read_record_batch(pa.py_buffer(data), schema)
