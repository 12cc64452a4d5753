"""`join`: join two streaming or batch DataFrames."""

import datetime
import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from adjoin.arguments import key_pairs, local_path, names, time_span, whole_number
from adjoin.errors import OptionError
from adjoin.keys.predicate import Distance
from adjoin.memory.budget import parse_bytes
from adjoin.operators.on import On
from adjoin.spark.enrich.micro_batch import MicroBatch
from adjoin.spark.join.batch import BatchJoin
from adjoin.spark.join.buckets import Routing, bucket_keys
from adjoin.spark.join.operator_client import DIRECTORY_SETTING, home_of
from adjoin.spark.join.options import PRESERVED, SIDES, JoinOptions
from adjoin.spark.join.packs import PACK_SCHEMA, Packer
from adjoin.spark.join.processor import TICKET_SCHEMA, JoinProcessor
from adjoin.spark.join.query_end import clean_up_after
from adjoin.spark.join.results import ResultReader
from adjoin.spark.metrics.metrics import REPORT_FIELD, next_name, observe_reports
from adjoin.spark.naming import by_place, column, comparison, found_name, refuse_repeated
from adjoin.spark.parallelism import parallelism
from adjoin.spark.types import arrow_schema_for_spark, arrow_settings, spark_schema, stream_schema
from adjoin.streamjoin.base.spec import LEFT, RIGHT

_DELAY = "spark.watermarkDelayMs"
_STATE_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
}


def join(
    left: DataFrame,
    right: DataFrame,
    on: On,
    how: str = "inner",
    memory: int | str = "512MB",
    partitions: int | None = None,
    *,
    time: tuple[str, str] | None = None,
    before: datetime.timedelta | str | None = None,
    after: datetime.timedelta | str | None = None,
    within: Distance | None = None,
    between: tuple[str, str] | None = None,
    suffix: str = "_right",
    spill: str | os.PathLike[str] | None = None,
    block_bytes: int | None = None,
    name: str | None = None,
) -> DataFrame:
    """Join two streams, in bounded memory, by equal keys, a band or a range, and a bound on their times.

    How it works: the rows of both streams are divided into buckets by key. Each bucket has an operator on an
    executor's host, which keeps the rows that may still find a partner: in memory as far as `memory` allows,
    the others on the host's disk. A log of these rows in Spark's state store survives the host. After every
    micro-batch, all results of the rows so far have been returned, as by Spark's own join.

    Args:
        left: A streaming or batch DataFrame, of classic Spark or of Connect.
        right: Another one of the same kind.
        on: Key: a name, a list of names, or `{"left column": "right column"}`.
        how: "inner", "left", "right", "full", "semi" or "anti". Rows without a partner are returned when the
            watermark and the bound say that none can come any more.
        memory: Budget of the whole join on one host: bytes, or a string such as "512MB".
        partitions: The number of buckets, which share the memory; by default as many as tasks can run at
            once. A checkpoint can only be continued with the number that it was made with.
        time: The columns with the times that the bound is about, one of the left and one of the right. In a
            streaming query both need a watermark, so that rows can leave.
        before: The right time is at most this much earlier than the left time; None: any time.
        after: The right time is at most this much later than the left time; None: any time.
        within: Band join: right key between left key - within and left key + within.
        between: Range join: right key between these two left columns; `on` names the right key.
        suffix: Appended to a right column whose name the left has too.
        spill: A directory on the hosts' own disks for what memory cannot hold; by default that of the
            setting `spark.adjoin.spill.dir`, or the system's temporary directory.
        block_bytes: Give this if an error asks for it, because a row is larger than 1 MB, or than a fiftieth
            of the memory.
        name: The name of its metrics in Spark's query progress.

    Returns:
        The left's columns, then the right's, an equality key once (semi and anti: the left's alone). Their
        times carry no watermark.

    Raises:
        OptionError: An argument is wrong, or Spark's state store is not set up for the join.
        SchemaError: A column is missing, or keys or times have types that cannot be compared.
        BudgetError: The memory is below the minimum, which the message names.

    Example:
        >>> # orders = spark.readStream... .withWatermark("ordered_at", "10 minutes"); payments likewise
        >>> # times = ("ordered_at", "paid_at")
        >>> # adjoin.join(orders, payments, "order_id", "left", time=times, before="0 s", after="1 hour")
    """
    _check_frames(left, right)
    options = _options(left, right, on, how, time, before, after, within, between, suffix)
    memory_bytes, count = parse_bytes(memory), _bucket_count(left, options, partitions)
    folder = _spill_folder(left, spill)
    block = None if block_bytes is None else whole_number("block_bytes", block_bytes, 1)
    options = replace(
        options, memory_bytes=memory_bytes // count, buckets=count, spill=folder, block_bytes=block
    )
    if name is not None and not (isinstance(name, str) and name):
        raise OptionError(f"name={name!r}: give a string")
    result = _result_schema(left, right, options)
    schema = arrow_schema_for_spark(result, *arrow_settings(left))
    routing = Routing(options, count)
    if left.isStreaming:
        _check_stream(left, options)
        observed = name or next_name()
        joined = _joined_streams(left, right, options, routing, schema, result, observed)
        return observe_reports(joined, observed, None)
    joined = _joined_batches(left, right, options, routing, schema, result)
    around = MicroBatch.around(left)
    return observe_reports(joined, name or (next_name() if around is None else None), around)


def _check_frames(left: DataFrame, right: DataFrame) -> None:
    for side, df in zip(SIDES, (left, right), strict=True):
        if not isinstance(df, DataFrame):
            raise OptionError(
                f"{side} is a {type(df).__name__}: join takes Spark DataFrames, adjoin.DINER Arrow batches"
            )
    if left.isStreaming != right.isStreaming:
        raise OptionError(
            "one DataFrame is streaming and the other is not: build a master from the batch DataFrame, and "
            "join the stream with it by adjoin.enrich"
        )


def _options(
    left: DataFrame,
    right: DataFrame,
    on: On,
    how: str,
    time: tuple[str, str] | None,
    before: datetime.timedelta | str | None,
    after: datetime.timedelta | str | None,
    within: Distance | None,
    between: tuple[str, str] | None,
    suffix: str,
) -> JoinOptions:
    """The arguments, with column names as the data spells them; memory is not divided yet."""
    if how not in PRESERVED:
        raise OptionError(f"how={how!r} is not one of {', '.join(PRESERVED)}")
    pairs = {
        found_name(left, ours, left.columns): found_name(right, theirs, right.columns)
        for theirs, ours in key_pairs(on).items()
    }
    if between is not None:
        low, high = names("between", between)
        between = found_name(left, low, left.columns), found_name(left, high, left.columns)
    if time is not None:
        ours, theirs = names("time", time)
        time = found_name(left, ours, left.columns), found_name(right, theirs, right.columns)
    return JoinOptions(
        left=stream_schema(left),
        right=stream_schema(right),
        on=pairs,
        how=how,
        within=within,
        between=between,
        time=time,
        before=_span("before", before),
        after=_span("after", after),
        watermarked=(_watermarked(left), _watermarked(right)),
        suffix=suffix,
        memory_bytes=0,
        spill=None,
    )


def _span(option: str, given: datetime.timedelta | str | None) -> datetime.timedelta | None:
    if given is None:
        return None
    return datetime.timedelta(microseconds=math.floor(time_span(option, given) * 10**6))


def _watermarked(df: DataFrame) -> str | None:
    """The column with a watermark, if there is one."""
    return next((field.name for field in df.schema if _DELAY in field.metadata), None)


def _bucket_count(df: DataFrame, options: JoinOptions, partitions: int | None) -> int:
    if not options.may_be_divided:
        if partitions not in (None, 1):
            raise OptionError(
                f"partitions={partitions!r}: with how={options.how!r}, a band or range join has one bucket"
            )
        return 1
    return parallelism(df.sparkSession) if partitions is None else whole_number("partitions", partitions, 1)


def _spill_folder(df: DataFrame, spill: str | os.PathLike[str] | None) -> str | None:
    found = df.sparkSession.conf.get(DIRECTORY_SETTING, None) if spill is None else spill
    return None if found is None else os.path.abspath(local_path(found, "spill"))


def _check_stream(df: DataFrame, options: JoinOptions) -> None:
    """Raise an OptionError if unmatched rows would never be returned, or the state store is not set up."""
    for side, bound, other in ((LEFT, options.after, "after"), (RIGHT, options.before, "before")):
        if side in options.preserved and (bound is None or not options.can_expire):
            raise OptionError(
                f"how={options.how!r} returns {SIDES[side]} rows without a partner once none can come: give "
                f"time= with the columns of both watermarks (withWatermark), and {other}="
            )
    conf = df.sparkSession.conf
    missing = {name: value for name, value in _STATE_SETTINGS.items() if conf.get(name, None) != value}
    if missing:
        cure = "; ".join(f'spark.conf.set("{name}", "{value}")' for name, value in missing.items())
        raise OptionError(f"set up Spark's state store for joins of streams before the query starts: {cure}")


def _result_schema(left: DataFrame, right: DataFrame, options: JoinOptions) -> StructType:
    """Columns of the result, the report last; makes all checks that need no rows."""
    # The driver may lack the directory.
    with options.of_all_buckets(), replace(options, spill=None).operator() as operator:
        found = operator.schema
    ours = list(zip(left.schema, options.left, strict=True))
    theirs = {given.name: (given, arrow) for given, arrow in zip(right.schema, options.right, strict=True)}
    fields = []
    for place, field in enumerate(found):
        if place < len(ours):
            known = ours[place]
        else:
            known = theirs.get(field.name) or theirs[field.name.removesuffix(options.suffix)]
        if known[1].type.equals(field.type):
            # Without the watermark: results can be older than it.
            metadata = {name: value for name, value in known[0].metadata.items() if name != _DELAY}
            fields.append(StructField(field.name, known[0].dataType, True, metadata))
        else:
            fields.append(StructField(field.name, spark_schema(pa.schema([field]))[0].dataType, True))
    refuse_repeated([*(field.name for field in fields), REPORT_FIELD.name], comparison(left))
    return StructType([*fields, REPORT_FIELD])


def _packed(
    sides: Sequence[DataFrame], options: JoinOptions, routing: Routing, keys: tuple[int, ...]
) -> DataFrame:
    """The rows of both sides, packed by bucket."""
    packed = []
    for side, df in enumerate(sides):
        if side not in options.preserved:
            # Spark's own join drops these rows before they count for the watermark.
            for key in options.key_columns(side):
                df = df.filter(column(key).isNotNull())  # noqa: PLW2901
        types = arrow_schema_for_spark(PACK_SCHEMA, *arrow_settings(df))
        packer = Packer(side, options.schemas[side], routing, keys, types)
        packed.append(by_place(df).mapInArrow(packer.pack, PACK_SCHEMA))
    return packed[LEFT].union(packed[RIGHT])


def _joined_streams(
    left: DataFrame,
    right: DataFrame,
    options: JoinOptions,
    routing: Routing,
    schema: pa.Schema,
    result: StructType,
    name: str,
) -> DataFrame:
    keys = bucket_keys(routing.count)
    clean_up_after(left, home_of(options))
    processor = JoinProcessor(
        options,
        {key: bucket for bucket, key in enumerate(keys)},
        _digest(name, options),
        has_timers=options.can_expire,
    )
    mode = "None" if options.watermarked == (None, None) else "EventTime"
    grouped = _packed((left, right), options, routing, keys).groupBy("bucket")
    tickets = grouped.transformWithState(processor, TICKET_SCHEMA, "Append", mode)
    return tickets.mapInArrow(ResultReader(schema).read, result)


def _joined_batches(
    left: DataFrame,
    right: DataFrame,
    options: JoinOptions,
    routing: Routing,
    schema: pa.Schema,
    result: StructType,
) -> DataFrame:
    packed = _packed((left, right), options, routing, tuple(range(routing.count)))
    routed = packed.repartitionById(routing.count, F.col("bucket"))
    return routed.mapInArrow(BatchJoin(options, schema).join, result)


def _digest(name: str, options: JoinOptions) -> str:
    return hashlib.sha256(repr((name, options.described())).encode()).hexdigest()[:16]
