"""Expiring keys: compared with an oracle, through crashes and replays, and in bounded space."""

import datetime
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin import Master, OptionError, SchemaError, etl
from adjoin.etl import time_to_live
from tests.spark.shop import as_dataframe, build, rows_of, write_batches
from tests.spark.test_etl import Load
from tests.unit.master.tables import rows_of as stored_rows

FAST: dict[str, Any] = {"route": "none", "memory": "16MB", "partitions": 1}
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
HOUR = 3_600_000_000
SEEN = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])


@dataclass
class Oracle:
    """The rule of the docstring, row by row, with hours instead of timestamps."""

    ttl: int
    clock: int | None = None
    seen: dict[int, int | None] = field(default_factory=dict)

    def batch(self, rows: list[tuple[int, int | None]]) -> list[tuple[int, int | None]]:
        new: dict[int, tuple[int, int | None]] = {}
        for key, time in sorted(rows, key=lambda row: (row[0], row[1] is None, row[1])):
            known = [moment for moment in (time, self.clock) if moment is not None]
            stored = self.seen.get(key)
            is_duplicate = key in self.seen and (
                stored is None or not known or max(known) - stored < self.ttl
            )
            if not is_duplicate and key not in new:
                new[key] = (key, time)
        times = [time for _, time in new.values() if time is not None]
        after = max([*times, *([] if self.clock is None else [self.clock])], default=None)
        for key, time in new.values():
            known = [moment for moment in (time, self.clock) if moment is not None]
            self.seen[key] = max(known) if known else after
        self.clock = after
        return list(new.values())


def batch_of(rows: list[tuple[int, int | None]]) -> pa.Table:
    moments = [None if hour is None else START + datetime.timedelta(hours=hour) for _, hour in rows]
    return pa.table(
        [pa.array([key for key, _ in rows], pa.int64()), pa.array(moments, SEEN.field("at").type)], SEEN.names
    )


def random_batches(batches: int, rows: int, keys: int, seed: int) -> list[list[tuple[int, int | None]]]:
    """Times advance, some rows are late, some have no time."""
    random = np.random.default_rng(seed)
    made = []
    for number in range(batches):
        hours = number * 3 + random.integers(-12, 4, rows)
        nulls = random.random(rows) < 0.05
        ids = random.integers(0, keys, rows)
        made.append(
            [
                (int(key), None if null else int(hour))
                for key, hour, null in zip(ids, hours, nulls, strict=True)
            ]
        )
    return made


def test_keys_expire_by_event_time_through_crashes_and_replays(spark, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(time_to_live, "_LEAST_PAGES_SWEPT", 1)
    batches: list[list[tuple[int, int | None]]] = [
        [(1, None), (2, None)],
        *random_batches(6, 60, 150, seed=5),
    ]
    build(SEEN.empty_table(), tmp_path / "seen").close()
    write_batches([batch_of(rows) for rows in batches], tmp_path / "in")
    load = Load(
        spark,
        tmp_path,
        lambda df: etl.deduplicate(
            df, tmp_path / "seen", on="id", order_by="at", ttl="10 hours", time="at", **FAST
        ),
        ("before write 0", "before write 2", "after write 3", "before write 6"),
    )
    load.run()
    oracle = Oracle(ttl=10)
    for number, rows in enumerate(batches):
        assert load.rows(number) == rows_of(batch_of(oracle.batch(rows))), number
    before = load.rows(6)
    load.forget_last_commit()
    load.run()
    assert load.rows(6) == before
    stored = {row["id"]: row["at"] for row in stored_rows(Master.open(tmp_path / "seen")).to_pylist()}
    wanted = {
        key: None if hour is None else START + datetime.timedelta(hours=hour)
        for key, hour in oracle.seen.items()
    }
    assert stored.items() <= wanted.items()
    assert set(wanted) - set(stored), "nothing was swept"
    assert oracle.clock is not None
    assert all(
        hour + 10 > oracle.clock - 10
        for key, hour in oracle.seen.items()
        if key in stored and hour is not None
    )


@pytest.mark.slow
def test_the_master_stays_small(spark, tmp_path: Path):
    """Each batch has only new keys; those of the last five hours are live."""
    build(SEEN.empty_table(), tmp_path / "seen").close()
    sizes = []
    for number in range(12):
        rows = batch_of([(number * 2_000 + key, number) for key in range(2_000)])
        options: dict[str, Any] = {"on": "id", "ttl": datetime.timedelta(hours=2), "time": "at", **FAST}
        etl.deduplicate(as_dataframe(spark, rows), tmp_path / "seen", txn=("load", number), **options)
        sizes.append(Master.open(tmp_path / "seen").rows)
    assert sizes[0] == 2_000
    assert max(sizes) <= 5 * 2_000, sizes


@pytest.mark.parametrize("ttl", [1, 3])
def test_keys_expire_by_micro_batch(spark, tmp_path: Path, ttl: int):
    schema = pa.schema([("id", pa.int64()), ("seen_in", pa.int64())])
    build(pa.table([[9], [None]], schema=schema), tmp_path / "seen").close()
    came = []
    for number in (0, 1, 2, 3, 3, 4):
        df = spark.createDataFrame([(1,), (9,), (100 + number,)], "id long")
        options: dict[str, Any] = {"on": "id", "ttl": ttl, "time": "seen_in", "txn": ("load", number), **FAST}
        rows = etl.deduplicate(df, tmp_path / "seen", **options)
        came.append(sorted(rows.toArrow()["id"].to_pylist()))
    new = [number % ttl == 0 for number in (0, 1, 2, 3, 3, 4)]
    assert came == [
        ([1] if is_new else []) + [100 + at] for is_new, at in zip(new, (0, 1, 2, 3, 3, 4), strict=True)
    ]
    left = {row["id"]: row["seen_in"] for row in stored_rows(Master.open(tmp_path / "seen")).to_pylist()}
    assert left.pop(9) is None
    assert all(4 - seen <= ttl for seen in left.values()), left
    with pytest.raises(OptionError, match="of another stream or checkpoint than 'other'"):
        etl.deduplicate(df, tmp_path / "seen", **{**options, "txn": ("other", 0)})


@pytest.mark.parametrize("type_", [pa.timestamp("ns"), pa.date32(), pa.timestamp("s", "Asia/Tokyo")])
def test_event_times_of_every_type(spark, tmp_path: Path, type_: pa.DataType):
    schema = pa.schema([("a", pa.string()), ("b", pa.int64()), ("at", type_)])
    build(schema.empty_table(), tmp_path / "seen", key=["a", "b"]).close()
    came = []
    for number, day in enumerate([1, 5, 8, 9]):
        moment = START.replace(day=day, tzinfo=START.tzinfo if getattr(type_, "tz", None) else None)
        given = pa.array([moment], pa.timestamp("us", getattr(type_, "tz", None))).cast(
            type_ if pa.types.is_date(type_) else pa.timestamp("us", getattr(type_, "tz", None))
        )
        table = pa.table([pa.array(["x"]), pa.array([1]), given], ["a", "b", "AT"])
        options: dict[str, Any] = {
            "on": ["a", "b"],
            "ttl": "7 days",
            "time": "at",
            "txn": ("load", number),
            **FAST,
        }
        came.append(etl.deduplicate(as_dataframe(spark, table), tmp_path / "seen", **options).count())
    assert came == [1, 0, 1, 0]


def test_invalid_options_are_rejected(spark, tmp_path: Path):
    schema = pa.schema([*SEEN, ("text", pa.string()), ("number", pa.int64())])
    master = build(schema.empty_table(), tmp_path / "seen")
    df = as_dataframe(spark, batch_of([(1, 1)]))
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"ttl": "7 days"}, OptionError, "give both"),
        ({"time": "at"}, OptionError, "give both"),
        ({"ttl": "soon", "time": "at"}, OptionError, "give a duration such as"),
        ({"ttl": "0 days", "time": "at"}, OptionError, "greater than 0"),
        ({"ttl": 0, "time": "number"}, OptionError, "at least 1"),
        ({"ttl": True, "time": "number"}, OptionError, "at least 1"),
        ({"ttl": 5, "time": "at"}, SchemaError, "int64 column of the master that the DataFrame lacks"),
        ({"ttl": 5, "time": "text"}, SchemaError, "int64 column of the master that the DataFrame lacks"),
        (
            {"ttl": "7 days", "time": "when"},
            SchemaError,
            "must name a column of the master other than its key",
        ),
        ({"ttl": "7 days", "time": "id"}, SchemaError, "must name a column of the master other than its key"),
        ({"ttl": "7 days", "time": "number"}, SchemaError, "is not a column of the DataFrame"),
    ]
    for options, error, message in wrong:
        with pytest.raises(error, match=message):
            etl.deduplicate(df, master, on="id", txn=("load", 0), **options)
    plain = df.selectExpr("id", "CAST(at AS timestamp_ntz) at")
    with pytest.raises(SchemaError, match="timestamp_ntz in the DataFrame and timestamp in the master"):
        etl.deduplicate(plain, master, on="id", txn=("load", 0), ttl="7 days", time="at")
