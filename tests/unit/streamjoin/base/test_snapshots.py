"""A snapshot is restored completely by the same join, or not at all."""

import random
from typing import Any

import pyarrow as pa
import pytest

from adjoin import DINER, MINER, RPJ, AdjoinError, CorruptionError, OptionError, SchemaError
from tests.unit.streamjoin.inputs import LEFT, RIGHT, Input, expected, pairs_of, small

KINDS = ["diner", "rpj"]


def filled(name: str, **options: Any) -> tuple[Any, Input, Input, list[pa.RecordBatch]]:
    join = small(name, **options)
    left, right = Input(LEFT, 1, 300), Input(RIGHT, 2, 300)
    found: list[pa.RecordBatch] = []
    for _ in range(5):
        found += list(join.push("left", left.draw(500))) + list(join.push("right", right.draw(500)))
    found += list(join.idle(0.1))
    assert join.metrics()["blocks_flushed"] > 0
    return join, left, right, found


SCHEMAS = {"left": LEFT, "right": RIGHT}
RENAMED = pa.schema([("key", pa.int64()), ("l", pa.int64()), ("text", pa.string())])
OTHERS: dict[str, Any] = {
    "on": ({"on": {"l": "k"}}, OptionError, "on was"),
    "within": ({"within": 2}, OptionError, "within was None"),
    "between": ({"between": ("k", "l")}, OptionError, "between was None"),
    "renamed": ({"left": RENAMED, "on": {"key": "k"}}, SchemaError, "schema of left"),
    "type": ({"left": LEFT.set(1, pa.field("l", pa.int32()))}, SchemaError, "schema of left"),
    "null": ({"left": LEFT.set(1, pa.field("l", pa.int64(), False))}, SchemaError, "schema of left"),
    "suffix": ({"suffix": "_r", "right": RIGHT.set(2, pa.field("l", pa.string()))}, SchemaError, "right"),
    "columns": ({"columns": ["l", "r"]}, SchemaError, "schema of results"),
    "memory": ({"memory": "900KB"}, OptionError, "memory was"),
    "block_bytes": ({"block_bytes": 8192}, OptionError, "block_bytes was"),
    "max_outer": ({"max_outer": 2}, OptionError, "max_outer was"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_snapshot_of_another_join_is_refused(other):
    join, *_ = filled("diner")
    values = list(join.snapshot())
    join.close()
    options, error, complaint = OTHERS[other]
    usual = {"left": LEFT, "right": RIGHT, "on": "k", "memory": "450KB", "block_bytes": 4096, "max_outer": 3}
    with DINER(**{**usual, **options}) as another:
        with pytest.raises(error, match=complaint):
            another.restore(values)
        batch = Input(options.get("left", LEFT), 1, 300).draw(9) if "left" not in options else None
        if batch is not None:
            list(another.push("left", batch))  # and is as new


def test_a_snapshot_of_another_operator_is_refused():
    join, *_ = filled("diner")
    values = list(join.snapshot())
    join.close()
    with small("rpj") as another, pytest.raises(OptionError, match="operator was 'DINER' and is 'RPJ'"):
        another.restore(values)
    schemas = {"left": LEFT, "right": RIGHT}
    with MINER(schemas, ["left.k = right.k"], "1MB") as many, pytest.raises(OptionError, match="MINER"):
        many.restore(values)


@pytest.mark.parametrize("on", [["r1.k = r0.l"], ["abs(r0.k - r1.k) <= 3"]])
def test_a_snapshot_with_other_conditions_is_refused(on):
    schemas = {"r0": LEFT, "r1": RIGHT}
    with MINER(schemas, ["abs(r0.k - r1.k) <= 2"], "1MB") as join, MINER(schemas, on, "1MB") as other:
        list(join.push("r0", Input(LEFT, 1, 9).draw(9)))
        with pytest.raises(OptionError, match="on was"):
            other.restore(join.snapshot())


def test_a_snapshot_with_another_fan_in_is_refused():
    join, *_ = filled("rpj")
    usual = {"left": LEFT, "right": RIGHT, "on": "k", "memory": "450KB", "block_bytes": 4096}
    with join, RPJ(**usual, fan_in=4) as other, pytest.raises(OptionError, match="fan_in was 3 and is 4"):
        other.restore(join.snapshot())


def damaged(values: dict[str, bytes], old: dict[str, bytes], chance: random.Random) -> dict[str, bytes]:
    """With one value missing, truncated, changed in a bit or some bytes, or replaced by another."""
    values = dict(values)
    name = chance.choice(sorted(values))
    value = values[name]
    how = chance.choice(["missing", "cut", "flipped", "swapped", "longer", "empty", "old"])
    at = chance.randrange(len(value))
    if how == "missing":
        del values[name]
    elif how == "cut":
        values[name] = value[:at]
    elif how == "flipped":
        values[name] = value[:at] + bytes([value[at] ^ (1 << chance.randrange(8))]) + value[at + 1 :]
    elif how == "longer":
        values[name] = value + b"\0"
    elif how == "empty":
        values[name] = b""
    else:
        other = chance.choice([each for each in sorted(values) if values[each] != value])
        values[name] = old[name] if how == "old" and old.get(name, value) != value else values[other]
    return values


@pytest.mark.parametrize("name", KINDS)
def test_damage_of_any_value_is_found(name):
    join, left, right, _ = filled(name)
    old = dict(join.snapshot())
    list(join.push("left", left.draw(500)))
    list(join.push("right", right.draw(500)))
    values = dict(join.snapshot())
    join.close()
    chance = random.Random(1)
    with small(name) as other:
        for _ in range(150):
            with pytest.raises(CorruptionError, match="snapshot"):
                other.restore(damaged(values, old, chance).items())
        other.restore(values.items())
        other.check_invariants()


def test_values_of_earlier_snapshots_are_ignored():
    join, left, right, found = filled("diner")
    values = {f"left/tuples/{number:09d}": b"older" for number in range(50, 60)}
    values.update(join.snapshot())
    join.close()
    with small("diner") as other:
        other.restore(values.items())
        found += list(other.finish())
    assert pairs_of(found) == expected(left.table, right.table, "l.k = r.k")


@pytest.mark.parametrize("values", [None, 7, [1], [("state",)], {"state": "text"}.items(), [(1, b"")]])
def test_values_that_are_not_a_snapshot_are_refused(values):
    with small("diner") as join, pytest.raises(AdjoinError):
        join.restore(values)


def test_a_snapshot_has_the_state_of_its_first_value():
    join, left, right, found = filled("diner")
    values = join.snapshot()
    found += list(join.push("left", left.draw(500)))
    with small("diner") as other:
        other.restore(values)
        join.close()
        found += list(other.push("right", right.draw(300))) + list(other.finish())
    assert pairs_of(found) == expected(left.table, right.table, "l.k = r.k")


def test_an_abandoned_snapshot_does_not_stop_the_join():
    join, left, right, found = filled("diner")
    values = join.snapshot()
    next(values)
    with pytest.raises(AdjoinError, match="not consumed"):
        join.push("left", left.draw(1))
    del left.batches[-1], values
    found += list(join.finish())
    join.close()
    assert pairs_of(found) == expected(left.table, right.table, "l.k = r.k")


def test_ordered_dictionaries_keep_their_order_in_a_snapshot():
    sizes = pa.DictionaryArray.from_arrays(
        pa.array([2, 0, 1], pa.int8()), pa.array(["small", "middle", "large"]), ordered=True
    )
    rows = pa.record_batch({"k": [1, 2, 3], "size": sizes})
    other = pa.record_batch({"k": [3, 1]})
    with (
        DINER(rows.schema, other.schema, "k", "2MB") as join,
        DINER(rows.schema, other.schema, "k", "2MB") as on,
    ):
        list(join.push("left", rows))
        on.restore(join.snapshot())
        (found,) = on.push("right", other)
    assert found["size"].type == pa.dictionary(pa.int32(), pa.string(), ordered=True)
    assert found["size"].dictionary.to_pylist() == ["small", "middle", "large"]
    assert sorted(zip(found["k"].to_pylist(), found["size"].to_pylist(), strict=True)) == [
        (1, "large"),
        (3, "middle"),
    ]


def test_orders_that_contradict_each_other_are_refused():
    def batch(words: list[str]) -> pa.RecordBatch:
        codes = pa.array(range(len(words)), pa.int8())
        return pa.record_batch(
            {"k": codes, "word": pa.DictionaryArray.from_arrays(codes, pa.array(words), ordered=True)}
        )

    rows = batch(["a", "c"])
    with DINER(rows.schema, rows.schema, "k", "2MB") as join:
        list(join.push("left", rows))
        list(join.push("left", batch(["a", "b", "c"])))
        list(join.push("left", batch(["b"])))
        with pytest.raises(SchemaError, match="column 'word'"):
            join.push("left", batch(["c", "b"]))
        list(join.push("left", batch(["b", "c"])))
