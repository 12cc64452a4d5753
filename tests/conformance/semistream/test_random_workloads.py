"""Results equal the oracle's for random masters, streams, batches, budgets, predicates and updates."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adjoin import Pause
from tests.conformance.batches import cut_at, numbered
from tests.conformance.semistream.checks.versions import assert_versions_explain
from tests.conformance.semistream.script import Item, Refresh
from tests.conformance.semistream.snapshots import Snapshot, snapshot
from tests.conformance.semistream.subjects import OPERATORS, SemiStreamSubject
from tests.conformance.semistream.workloads import HOWS, Workload
from tests.conformance.values import KEY_TYPES, MEASURABLE_KEYS, key_pool, random_column, reach_of, strings
from tests.oracle import Predicate

KEYS = (
    "int64",
    "int32",
    "uint64",
    "float64",
    "date32",
    "timestamp_ns_tz",
    "decimal_9",
    "string",
    "int32+string",
)
POOL = 50
PAYLOAD = {"n": pa.int32(), "tags": pa.list_(pa.string()), "flag": pa.bool_()}


@dataclass(frozen=True)
class MasterPlan:
    """Parameters of a master; equal plans share one store."""

    key: str
    rows: int
    distinct: int
    page_bytes: int
    fill: float
    filter_bits: int


def rows_of(key: str, places: Any, seed: int) -> pa.Table:
    """Master rows with the pool's keys at these places."""
    rng = np.random.default_rng(seed)
    pool = key_pool(KEY_TYPES[key], POOL, seed=0)
    index = pa.array(np.asarray(places, np.int64) % len(pool[0]))
    columns = {f"k{i}": column.take(index) for i, column in enumerate(pool)}
    payload = {name: random_column(kind, len(index), rng) for name, kind in PAYLOAD.items()}
    return pa.table({**columns, "text": strings(len(index), rng), **payload})


@cache
def versions_of(plan: MasterPlan, seeds: tuple[int, ...]) -> list[Snapshot]:
    """A master, and what it becomes by one set of changes per seed."""
    rng = np.random.default_rng(plan.rows)
    table = rows_of(plan.key, rng.integers(0, plan.distinct, plan.rows), seed=plan.rows)
    key = [name for name in table.column_names if name.startswith("k")]
    options = {"page_bytes": plan.page_bytes, "fill": plan.fill, "filter_bits": plan.filter_bits}
    versions = [snapshot(table, key, **options)]
    for seed in seeds:
        versions.append(versions[-1].changed(random_changes(plan.key, seed)))
    return versions


def random_changes(key: str, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 40))
    operations = rng.choice(["upsert", "delete", "insert"], count, p=[0.5, 0.25, 0.25])
    return rows_of(key, rng.integers(0, POOL, count), seed).append_column("_op", pa.array(operations))


plans = st.builds(
    MasterPlan,
    key=st.sampled_from(KEYS),
    rows=st.sampled_from([0, 1, 30, 300]),
    distinct=st.sampled_from([2, 12, 40]),
    page_bytes=st.sampled_from([4096, 8192]),
    fill=st.sampled_from([0.4, 0.8, 1.0]),
    filter_bits=st.sampled_from([0, 8]),
)


@st.composite
def questions(draw: st.DrawFn, key: str, ranges: bool) -> tuple[pa.Table, Predicate]:
    """A stream and a predicate for a master with this key."""
    pool = key_pool(KEY_TYPES[key], POOL, seed=0)
    places = draw(st.lists(st.integers(-1, len(pool[0]) - 1), max_size=100))
    index = pa.array([None if place < 0 else place for place in places], pa.int64())
    names = [f"k{i}" for i in range(len(pool))]
    note = strings(len(index), np.random.default_rng(0), draw(st.sampled_from([2, 100, 3000])))
    stream = numbered(pa.table([*(column.take(index) for column in pool), note], names=[*names, "note"]))
    kinds = ["equal", "within", "between"] if ranges and key in MEASURABLE_KEYS else ["equal"]
    match draw(st.sampled_from(kinds)):
        case "within":
            return stream, Predicate("k0", within=reach_of(pool[0].type))
        case "between":
            moved = np.roll(np.arange(len(index)), draw(st.integers(0, 5)))
            bounds = {
                "rid": stream["rid"],
                "note": note,
                "lo": stream["k0"],
                "hi": stream["k0"].take(pa.array(moved)),
            }
            return pa.table(bounds), Predicate("k0", between=("lo", "hi"))
    return stream, Predicate(names if len(names) > 1 else names[0])


@st.composite
def scripts(draw: st.DrawFn, stream: pa.Table, newer: list[Snapshot]) -> list[Item]:
    """The stream in random batches, new versions and pauses in between."""
    items: list[Item] = list(cut_at(stream, draw(st.lists(st.integers(0, len(stream)), max_size=8))))
    places = draw(st.lists(st.integers(0, len(items)), min_size=len(newer), max_size=len(newer)))
    for shift, (place, version) in enumerate(zip(sorted(places), newer, strict=True)):
        items.insert(place + shift, Refresh(version))
    for place in draw(st.lists(st.integers(0, len(items)), max_size=3)):
        items.insert(place, Pause(1.5))
    return items


rows = st.sampled_from([None, 1, 10, 10_000])
thresholds = st.fixed_dictionaries(
    {"input_rows": rows, "stream_rows": rows, "max_scan": st.sampled_from([1, 3, 200])}
)


@pytest.mark.parametrize("subject", OPERATORS, ids=lambda subject: subject.name)
def test_random_workloads(subject: SemiStreamSubject) -> None:
    run_random_workloads(subject, max(40 // subject.quick_one_in, 6))


@pytest.mark.slow
@pytest.mark.parametrize("subject", OPERATORS, ids=lambda subject: subject.name)
def test_many_more_random_workloads(subject: SemiStreamSubject) -> None:
    run_random_workloads(subject, 100)


def run_random_workloads(subject: SemiStreamSubject, examples: int) -> None:
    @given(data=st.data())
    @settings(max_examples=examples)
    def run(data: st.DataObject) -> None:
        run_random_workload(subject, data)

    run()


def run_random_workload(subject: SemiStreamSubject, data: st.DataObject) -> None:
    plan = data.draw(plans)
    versions = versions_of(plan, tuple(data.draw(st.lists(st.integers(0, 2), max_size=2))))
    stream, predicate = data.draw(questions(plan.key, "range" in subject.able))
    script = data.draw(scripts(stream, versions[1:]))
    how = data.draw(st.sampled_from(HOWS))
    extra_bytes = data.draw(st.sampled_from([0, 1, 700, 5_000, 40_000, 10_000_000]))
    options = data.draw(thresholds) if "thresholds" in subject.able else {}
    workload = Workload("random", versions[0], stream, predicate)
    assert_versions_explain(subject, workload, script, how, subject.least(*versions) + extra_bytes, **options)
