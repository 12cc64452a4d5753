"""The log of a bucket, its buckets and its watermarks, without Spark."""

import datetime
import json

import numpy as np
import pyarrow as pa
import pytest

from adjoin.errors import CorruptionError, OptionError
from adjoin.spark.join.buckets import Routing, bucket_keys
from adjoin.spark.join.event_time import expired_at, late_at
from adjoin.spark.join.log import MATCHED, Log, Meta
from adjoin.spark.join.options import JoinOptions
from adjoin.spark.join.stored_rows import rows_of

TIME = pa.timestamp("us", "UTC")
LEFT = pa.schema([("k", pa.float64()), ("t", TIME)])
RIGHT = pa.schema([("k", pa.float64()), ("u", TIME)])


def options(**changed):
    given = {
        "left": LEFT,
        "right": RIGHT,
        "on": {"k": "k"},
        "how": "inner",
        "within": None,
        "between": None,
        "time": ("t", "u"),
        "before": datetime.timedelta(seconds=1),
        "after": datetime.timedelta(minutes=1),
        "watermarked": ("t", "u"),
        "suffix": "_right",
        "memory_bytes": 1 << 20,
        "spill": None,
    }
    return JoinOptions(**{**given, **changed})


class Store:
    """A state store."""

    def __init__(self):
        self.held = {}

    def get(self, number, part):
        return self.held[number, part]

    def put(self, number, part, value):
        self.held[number, part] = value

    def remove(self, number, part):
        del self.held[number, part]


def test_options_travel_as_json():
    given = options(within=datetime.timedelta(days=1), between=("k", "t"), spill="/spill")
    assert JoinOptions.from_json(json.loads(json.dumps(given.to_json()))) == given


def test_values_are_divided_and_removed_whole():
    store, meta = Store(), Meta({})
    log = Log(meta, store)
    values = [bytes(chance) for chance in np.random.default_rng(1).integers(0, 256, (3, 700_000), np.uint8)]
    for number, value in enumerate(values):
        log.add(value, kind=0, first=10 * number, rows=10, latest=number, median=number)
    assert [value for _, value in log.rows()] == values
    assert len(store.held) > len(values)
    log.expire((2, None))
    assert [entry.first for entry, _ in log.rows()] == [20]
    log.expire((3, None))
    assert not store.held
    assert meta.entries == []


def test_meta_is_restored_and_checked():
    meta = Meta({"how": "inner"}, token="abc", watermark=7, next_row=3)
    Log(meta, Store()).add(b"rows", kind=1, first=0, rows=3, sizes=(4,))
    assert Meta.from_bytes(meta.to_bytes(), {"how": "inner"}) == meta
    with pytest.raises(OptionError, match=r"how='inner'.*how='left'"):
        Meta.from_bytes(meta.to_bytes(), {"how": "left"})
    with pytest.raises(CorruptionError, match="damaged"):
        Meta.from_bytes(meta.to_bytes()[:-9], {"how": "inner"})
    with pytest.raises(OptionError, match="format 2"):
        Meta.from_bytes(meta.to_bytes().replace(b'"format": 1', b'"format": 2'), {"how": "inner"})


def test_matched_rows_are_folded_and_forgotten_with_their_rows():
    log = Log(Meta({}), Store())
    log.meta.next_row = 1000
    for number in range(100):
        log.add(b"x", kind=0, first=10 * number, rows=10, latest=number, median=number)
        log.add_matched(MATCHED[0], np.arange(10 * number, 10 * number + 5))
    log.expire((30, None))
    assert log.matched()[0].tolist() == [n for n in range(300, 1000) if n % 10 < 5]
    assert len(log.meta.entries) == 71
    log.expire((100, None))
    assert log.meta.entries == []


def test_rows_of_an_entry_are_those_that_are_left():
    times = [5, 1, None, 9, 3]
    batch = pa.record_batch([pa.array([1.0, 2.0, 3.0, 4.0, 5.0]), pa.array(times, TIME)], schema=LEFT)
    pack = batch.serialize().to_pybytes()
    log = Log(Meta({}), Store())
    log.add(2 * pack, kind=0, first=100, rows=10, sizes=(len(pack),) * 2, late=1)
    ((entry, value),) = log.rows()
    rows, numbers = rows_of(entry, value, options(), 4)
    # The late row has no number, the row without a time has left.
    assert numbers.tolist() == [100, 102, 104, 106]
    assert rows.column("k").to_pylist() == [1.0, 4.0] * 2


@pytest.mark.parametrize("watermark", [0, 999, 60_000, 61_002])
def test_limits_are_those_of_spark(watermark):
    """Late at the watermark before; expired at the watermark less the bound less a millisecond."""
    given = options()
    assert late_at(given, watermark) == (watermark * 1000,) * 2
    left, right = expired_at(given, watermark)
    assert left == (watermark - 60_000 - 1) * 1000 + 1
    assert right == (watermark - 1_000 - 1) * 1000 + 1
    assert expired_at(options(after=None), watermark)[0] is None
    assert expired_at(options(watermarked=("t", None)), watermark) == (None, None)


@pytest.mark.parametrize("count", [1, 2, 3, 8, 64])
def test_every_bucket_has_a_partition_of_its_own(count):
    keys = bucket_keys(count)
    assert len(set(keys)) == count
    assert keys == bucket_keys(count)


@pytest.mark.parametrize(
    "changed",
    [{}, {"within": 0.25}, {"within": 0}, {"between": ("k", "end")}],
    ids=["equality", "band", "point", "range"],
)
@pytest.mark.parametrize("count", [1, 2, 5])
def test_rows_that_match_meet_in_one_bucket(changed, count):
    chance = np.random.default_rng(3)
    odd = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e300, -1e-300]
    left_keys = np.concatenate([chance.normal(size=200), odd])
    right_keys = np.concatenate([left_keys[:100] + chance.uniform(-0.3, 0.3, 100), left_keys])
    left = {"k": left_keys, "end": left_keys + chance.uniform(0, 1, len(left_keys))}
    schema = pa.schema([("k", pa.float64()), ("end", pa.float64())])
    routing = Routing(
        options(left=schema, right=pa.schema([("k", pa.float64())]), time=None, **changed), count
    )
    sides = [pa.record_batch(left, schema=schema), pa.record_batch({"k": right_keys})]
    homes = [
        set(zip(*map(np.ndarray.tolist, routing.buckets(side, rows)), strict=True))
        for side, rows in enumerate(sides)
    ]
    for row, key in enumerate(left_keys):
        for other, value in enumerate(right_keys):
            if _match(changed, key, left["end"][row], value):
                together = [
                    bucket
                    for bucket in range(count)
                    if (row, bucket) in homes[0] and (other, bucket) in homes[1]
                ]
                assert len(together) == 1, (key, value)


def _match(changed, key, end, value):
    if "between" in changed:
        return key <= value <= end
    if "within" in changed and not np.isnan(key):
        return key - changed["within"] <= value <= key + changed["within"]
    return key == value or (np.isnan(key) and np.isnan(value))
