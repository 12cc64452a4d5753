"""`enrich`: join a batch or streaming DataFrame with a master."""

import datetime
import hashlib
import os
import threading
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from adjoin.arguments import local_path
from adjoin.errors import OptionError
from adjoin.keys.predicate import Distance
from adjoin.master.master import Master
from adjoin.memory.budget import parse_bytes
from adjoin.operators.on import On
from adjoin.semistream.algorithms import algorithm_named
from adjoin.semistream.base.spec import JoinSpec, make_spec
from adjoin.semistream.ssij.deadline import Deadline
from adjoin.spark.enrich.micro_batch import MicroBatch
from adjoin.spark.enrich.routing import ROUTES, route_by_range
from adjoin.spark.enrich.shares import default_partitions, share_of
from adjoin.spark.enrich.task import EnrichTask
from adjoin.spark.metrics.metrics import REPORT_FIELD, next_name, observe_reports
from adjoin.spark.naming import by_place, comparison, found_key, found_name, found_names, refuse_repeated
from adjoin.spark.page_memory.files import DIRECTORY_SETTING
from adjoin.spark.page_memory.query_end import clean_up_after
from adjoin.spark.parallelism import parallelism
from adjoin.spark.types import arrow_schema_for_spark, arrow_settings, spark_schema, stream_schema

_PINS_KEPT = 16


def enrich(
    df: DataFrame,
    master: Master | str | os.PathLike[str],
    on: On,
    how: str = "inner",
    columns: Sequence[str] | None = None,
    memory: int | str = "256MB",
    algorithm: str = "ssij",
    partitions: int | None = None,
    route: str = "range",
    deadline: float | datetime.timedelta | str | None = None,
    *,
    within: Distance | None = None,
    between: tuple[str, str] | None = None,
    suffix: str = "_master",
    version: int | None = None,
    records: str | os.PathLike[str] | None = None,
    name: str | None = None,
) -> DataFrame:
    """Join a DataFrame with a master that is larger than memory.

    How it works: rows are routed so that those that need neighboring pages meet in one task; each task
    joins its rows with the pages it has in memory and reads only the missing ones. Pages in memory
    outlive the micro-batch and the Python worker.

    Args:
        df: The stream: a streaming or batch DataFrame, of classic Spark or of Connect.
        master: A master, or its path, which must be the same on every executor.
        on: Key: a name, a list of names, or `{"stream column": "master column"}`. Keys are compared by
            value; strings are compared bytewise, ignoring collation. Here and in all other arguments,
            column names are matched as the session does (`spark.sql.caseSensitive`); the result has
            them as the data spells them.
        how: "inner", "left", "semi" or "anti".
        columns: Master columns to return, in this order; all by default.
        memory: Budget of the whole operator on one host: bytes, or a string such as "256MB".
        algorithm: The operator: "ssij", "hybridjoin", "xhybridjoin", "meshjoin", "rmeshjoin", "inlj", each
            with "+front" for a row cache in front of it ("cmeshjoin" is "meshjoin+front"), or "auto",
            which chooses; see `EnrichProgress.algorithm`.
        partitions: Tasks that share the budget and, if rows are routed, the master; by default as many
            as can run at once. With `route="none"`, the number of tasks that may join at once on a host.
        route: "range" sends rows with neighboring keys to the same task, the same number to each task. To
            find the ranges, Spark runs everything since the last shuffle twice, so the second of two
            joins in a row does better with "none", which leaves rows where they are.
        deadline: Seconds within which a task must return a row it has received, or the name of a column
            with the time; see `SSIJ`. The end of the micro-batch returns all rows in any case.
        within: Range join: master key between stream key - within and stream key + within.
        between: Range join: master key between these two stream columns; `on` names the master's key.
        suffix: Appended to a master column whose name the stream has too.
        version: Join with this version of the master. By default each micro-batch of a streaming query
            sees the version that was newest when it began, and sees it again if replayed, also inside
            `foreachBatch`; any other batch DataFrame sees the version of `master`, or the newest if that
            is a path.
        records: A directory, the same on every executor, for the records of which version each
            micro-batch sees. By default they are in the master, which executors must then be able to
            write to; with this the master may be read-only or its disk full. The directory is created if
            necessary and can serve many masters and queries. `Master.vacuum` must be told about it.
        name: The name of its metrics in Spark's query progress. By default "adjoin", "adjoin_2" and so on,
            in the order of the calls; give a name to look them up.

    Returns:
        The stream's columns, then the master's without the key of the same name (semi and anti: the
        stream's alone). The operator's metrics are in Spark's query progress; see `EnrichListener`.

    Raises:
        SchemaError: A column is missing, or the key has another type.
        BudgetError: The memory is below the minimum, which the message names.
        MasterNotFoundError: There is no master at the path.

    The query keeps the columns that the master had when `enrich` was called, with the names and types of
    that moment, see `Master.evolve`. If the master is removed and another one is built at its path, the
    query ends with a MasterReplacedError: call `enrich` again.

    Example:
        >>> # sales = spark.readStream...
        >>> # facts = adjoin.enrich(sales, "/warehouse/products", on="product_id", how="left")

    Cost: two passes over the source of each micro-batch, one shuffle, one Python worker per task, and the
    master reads that the stream's keys require. Never more than `memory` on a host, in addition to the
    Arrow batch that Spark hands over (`spark.sql.execution.arrow.maxRecordsPerBatch` rows).
    """
    if not isinstance(df, DataFrame):
        raise OptionError(
            f"df is a {type(df).__name__}; enrich takes a Spark DataFrame, adjoin.SSIJ takes Arrow batches"
        )
    if not isinstance(master, Master):
        master = Master.open(master, version)
    elif version is not None:
        master = master.at(version)
    place = None if records is None else os.path.abspath(local_path(records, "records"))
    memory_bytes = parse_bytes(memory)
    kind = algorithm_named(algorithm)
    if name is not None and not (isinstance(name, str) and name):
        raise OptionError(f"name={name!r}: give a string")
    join: dict[str, Any] = {
        **_found(df, master, on, columns, between),
        "how": how,
        "within": within,
        "suffix": suffix,
    }
    if isinstance(deadline, str):
        deadline = found_name(df, deadline, df.columns)
    spec = make_spec(master, **join)
    if deadline is not None and not kind.keeps_deadlines:
        raise OptionError(f'algorithm={algorithm!r} keeps no deadlines; "ssij" and "ssij+front" do')
    result = _result_schema(df, master, spec, Deadline(deadline))
    count = _partitions(df, master, memory_bytes, partitions)
    routed = _routed(df, master, spec, route, count)
    time_zone, large_var_types = arrow_settings(df)
    around = None if df.isStreaming else MicroBatch.around(df)
    observed = name or (next_name() if around is None else None)
    added = spec.output_schema(stream_schema(df), master.schema)
    task = EnrichTask(
        path=master.path,
        view=master.view(spec.columns),
        version=version,
        batch_version=master.version,
        algorithm=algorithm,
        options={**join, "columns": list(spec.columns), **_particular(algorithm, deadline)},
        memory_bytes=memory_bytes,
        partitions=count,
        is_routed=route == "range",
        operator_id=_digest(
            observed if df.isStreaming else name, master.path, master.id, algorithm, join, memory_bytes, count
        ),
        run=uuid.uuid4().hex,
        directory=df.sparkSession.conf.get(DIRECTORY_SETTING, None),
        records=place,
        added=pa.schema(list(added)[len(df.columns) :]),
        schema=arrow_schema_for_spark(result, time_zone, large_var_types),
    )
    clean_up_after(df, master.path, place)
    if not df.isStreaming:
        _keep_pinned(master)
    joined = routed.mapInArrow(task.join, result)  # the task puts names back
    return observe_reports(joined, observed, around)


def _found(
    df: DataFrame,
    master: Master,
    on: On,
    columns: Sequence[str] | None,
    between: tuple[str, str] | None,
) -> dict[str, Any]:
    """The arguments with column names as the data spells them; the session may ignore case."""
    on = found_key(df, master.key, on)
    if columns is not None and not isinstance(columns, str):
        columns = found_names(df, columns, master.schema.names)
    if between is not None and not isinstance(between, str):
        low_and_high = found_names(df, between, df.columns)
        return {"on": on, "columns": columns, "between": tuple(low_and_high)}
    compared = comparison(df)
    if isinstance(on, Mapping):
        # Spark considers both names equal, so the master's key is not emitted a second time.
        same = {key for name, key in on.items() if name != key and compared(name) == compared(key)}
        given = master.schema.names if columns is None else columns
        columns = [name for name in given if name not in same] if same else columns
    return {"on": on, "columns": columns, "between": between}


def _particular(algorithm: str, deadline: Any) -> dict[str, Any]:
    """Options that only some operators have."""
    if algorithm == "auto":
        return {"is_paced": True}  # no row is pending after the end of the micro-batch
    return {} if deadline is None else {"deadline": deadline}


def _result_schema(df: DataFrame, master: Master, spec: JoinSpec, deadline: Deadline) -> StructType:
    """Columns of the result, the report last; makes all checks that need no rows."""
    stream = stream_schema(df)
    deadline.check(stream)
    fields = spec.output_schema(stream, master.schema)
    spec.predicate.bounds(pa.record_batch([pa.nulls(0, field.type) for field in stream], schema=stream))
    # Every column is nullable, because reports travel as rows of nulls among the results.
    given = [StructField(field.name, field.dataType, True, field.metadata) for field in df.schema]
    others = spark_schema(pa.schema(list(fields)[len(given) :]))
    compared = comparison(df)
    taken = {compared(field.name) for field in given}
    added = []
    for field in others:
        # The suffix is there already, unless the names differ only in case.
        name = field.name if compared(field.name) not in taken else field.name + spec.suffix
        added.append(StructField(name, field.dataType, True))
    result = StructType([*given, *added, REPORT_FIELD])
    refuse_repeated(result.names, compared)
    return result


def _partitions(df: DataFrame, master: Master, memory_bytes: int, partitions: int | None) -> int:
    if partitions is None:
        partitions = default_partitions(master, memory_bytes, parallelism(df.sparkSession))
    elif not isinstance(partitions, int) or isinstance(partitions, bool) or partitions < 1:
        raise OptionError(f"partitions={partitions!r} must be an integer of at least 1")
    share_of(master, memory_bytes, partitions)
    return partitions


def _routed(df: DataFrame, master: Master, spec: JoinSpec, route: str, partitions: int) -> DataFrame:
    """The rows sent to where they are joined, their columns named by position."""
    if route not in ROUTES:
        raise OptionError(f"route={route!r} is not one of {', '.join(ROUTES)}")
    # First of all: Spark cannot shuffle rows as applyInPandasWithState and some others emit them.
    placed = by_place(df)
    if route == "none":
        return placed
    places = dict(zip(df.columns, placed.columns, strict=True))
    keys = [places[name] for name in spec.predicate.columns]
    return route_by_range(placed, master, keys, partitions)


def _digest(*facts: object) -> str:
    """A digest that is the same for every micro-batch of a query."""
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


_pins: OrderedDict[tuple[str, int], Master] = OrderedDict()
_pins_lock = threading.Lock()


def _keep_pinned(master: Master) -> None:
    """Protect the version of a batch DataFrame from `vacuum`: it may be run at any time, and repeatedly.

    Only the most recent versions are pinned, because a long-lived driver can see very many.
    """
    own = master.at(master.version)
    with _pins_lock:
        _pins[master.path, master.version] = own
        _pins.move_to_end((master.path, master.version))
        while len(_pins) > _PINS_KEPT:
            _pins.popitem(last=False)
