"""Extreme values of every option of every operator are accepted or raise an OptionError, nothing else."""

import datetime
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin import SSIJ, AdjoinError, Master, OptionError, Pause
from adjoin.operators.clock import SimulatedClock
from adjoin.semistream.algorithms import ALGORITHM_NAMES, algorithm_named
from adjoin.semistream.ssij.deadline import Deadline
from tests.odd_columns import MANY, TWO

NEVER: tuple[Any, ...] = (
    *("x", "", b"1", [1], {}, (), 1j, Ellipsis, np.array([1, 2]), np.array(1.5), np.datetime64("nat")),
    "\ud800",
    *(True, False, np.bool_(True), math.nan, np.float32("nan"), Decimal("NaN"), Decimal("sNaN")),
    *(-1, -(10**400), -math.inf, -0.5, Decimal(-1), np.int64(-1), datetime.timedelta(-1)),
)
"""Values that are no valid number."""
NO_WHOLE: tuple[Any, ...] = (0.5, math.inf, 10**400, -0.0, Fraction(1, 3), np.float32(0.5), Decimal(1))
NUMBERS = (0, 1, 7, 2**31, 2**63, np.int8(3), *NO_WHOLE)
WHOLE: tuple[str, ...] = (
    "max_outer",
    "least_outer",
    "max_new",
    "block_bytes",
    "fan_in",
    "seed",
    "input_rows",
    "stream_rows",
    "max_scan",
)
WHOLE += ("disk_pages", "pinned_pages")
SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64())])
OBJECTS = ("clock", "device", "disk", "pages")
"""Options that take an object, not a value."""
OF_STREAMS: tuple[str, ...] = (
    "max_outer",
    "least_outer",
    "max_new",
    "block_bytes",
    "wait_seconds",
    "memory",
    "seed",
    "fan_in",
    "spill",
)
OF_STREAMS += ("columns", "suffix", "within", "between", "on", "clock", "disk")
OF_MASTERS: tuple[str, ...] = (
    "memory",
    "deadline",
    "input_rows",
    "stream_rows",
    "max_scan",
    "decay",
    "disk_pages",
    "front",
)
OF_MASTERS += (
    "pinned_pages",
    "shared_index",
    "columns",
    "suffix",
    "within",
    "between",
    "on",
    "is_paced",
    "how",
    "clock",
    "device",
    "pages",
)


def shown(value):
    return f"{value!r:.30}"


def attempt(make: Any, options: dict[str, Any], wrong: dict[str, Any]) -> bool:
    """Whether an option is accepted; otherwise it must be refused by one of adjoin's errors."""
    try:
        make(**{**options, **wrong}).close()
    except AdjoinError:
        return False
    except TypeError as error:
        if "unexpected keyword argument" in str(error):
            return False
        raise
    return True


def check_option(make: Any, options: dict[str, Any], option: str) -> None:
    for value in (*NEVER, *NUMBERS):
        is_taken = attempt(make, options, {option: value})
        is_number = option in WHOLE or option in {"wait_seconds", "decay", "front"}
        never = (*NEVER, *NO_WHOLE) if option in WHOLE else NEVER
        if is_number and any(value is each for each in never):
            assert not is_taken, (option, value)
        if option in OBJECTS:
            assert not is_taken, (option, value)


@pytest.mark.parametrize("name", [*TWO, *MANY])
def test_options_of_stream_joins(name):
    usual: dict[str, Any] = {"memory": "2MB", "clock": SimulatedClock()}
    if name in TWO:
        usual |= {"left": SCHEMA, "right": SCHEMA, "on": "k"}
    else:
        usual |= {"relations": {"a": SCHEMA, "b": SCHEMA}, "on": ["a.k = b.k"]}
    for option in (*OF_STREAMS, *(("left", "right") if name in TWO else ("relations",))):
        check_option(TWO.get(name) or MANY[name], usual, option)


@pytest.mark.parametrize(
    "name",
    [
        "ssij",
        "hybridjoin",
        "xhybridjoin+front",
        "meshjoin",
        "inlj",
        pytest.param("auto", marks=pytest.mark.slow),
    ],
)
def test_options_of_joins_with_a_master(name, tmp_path):
    assert name in ALGORITHM_NAMES
    master = Master.build(pa.table({"k": [1, 2], "m": [1, 2]}), key="k", path=tmp_path / "m")
    usual = {"master": master, "on": "k", "memory": "2MB", "clock": SimulatedClock()}
    for option in OF_MASTERS:
        check_option(algorithm_named(name), usual, option)


@pytest.mark.parametrize("seconds", [*NEVER, 10**400, math.inf, 1e300], ids=shown)
def test_extreme_pauses(seconds, tmp_path):
    if isinstance(seconds, datetime.timedelta):
        seconds = -1
    joins: list[Any] = [TWO["diner"](SCHEMA, SCHEMA, "k", "2MB", clock=SimulatedClock())]
    master = Master.build(pa.table({"k": [1, 2]}), key="k", path=tmp_path / "m")
    kinds: list[Any] = [algorithm_named(name) for name in ("ssij", "auto")]
    joins += [kind(master, on="k", clock=SimulatedClock()) for kind in kinds]
    for join in joins:
        with join:
            with pytest.raises(OptionError, match="seconds="):
                join.idle(seconds)
            list(join.idle(0.5))
            with pytest.raises(OptionError, match="seconds="):
                list(join.run([Pause(seconds)]))


@pytest.mark.parametrize("deadline", [*NEVER, 10**400, math.inf, 0, 0.0, datetime.timedelta(0)], ids=shown)
def test_invalid_deadlines_are_refused(deadline, tmp_path):
    master = Master.build(pa.table({"k": [1, 2]}), key="k", path=tmp_path / "m")
    with pytest.raises(AdjoinError), SSIJ(master, on="k", deadline=deadline) as join:
        join.push(pa.record_batch({"k": [1]}))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([-(2**63), 2**63 - 1, 0, None], pa.int64()),
        pa.array([0, 2**64 - 1], pa.uint64()),
        pa.array([math.nan, math.inf, -math.inf, 1e308, -1e308, None]),
        *(
            pa.array([-(2**63), 2**63 - 1, None], pa.int64()).view(pa.timestamp(unit))
            for unit in ("s", "ms", "us", "ns")
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("clock", [None, SimulatedClock()], ids=["system", "simulated"])
def test_extreme_deadlines(column, clock, tmp_path):
    master = Master.build(pa.table({"k": [1, 2]}), key="k", path=tmp_path / "m")
    rows = pa.record_batch({"k": [1] * len(column), "due": column})
    with SSIJ(master, on="k", deadline="due", clock=clock) as join:
        found = list(join.run([rows, Pause(0.01), rows]))
    assert sum(batch.num_rows for batch in found) == 2 * len(column)


def test_timestamps_of_every_unit_give_the_same_deadlines():
    for unit, ticks in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        batch = pa.record_batch(
            {"due": pa.array([1_700_000_000 * ticks], pa.int64()).view(pa.timestamp(unit))}
        )
        due = Deadline("due").due(batch, 0.0)
        assert due is not None
        assert due.tolist() == [1_700_000_000.0]


@pytest.mark.parametrize("items", [[1], [()], [("left",)], ["left"], [pa.record_batch({"k": [1]})]])
def test_invalid_items_are_refused(items):
    with TWO["diner"](SCHEMA, SCHEMA, "k", "2MB", clock=SimulatedClock()) as join, pytest.raises(AdjoinError):
        list(join.run(items))
