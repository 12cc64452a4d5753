"""Every stream row is answered from a single version, one that was current while the row was pending."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin import Pause
from tests.conformance.registry import SEMI_STREAM
from tests.conformance.semistream import workloads
from tests.conformance.semistream.script import Item, Refresh
from tests.conformance.semistream.snapshots import Snapshot
from tests.conformance.semistream.subjects import SemiStreamSubject, Step, play
from tests.conformance.semistream.workloads import HOWS, Workload
from tests.conformance.subjects import collected
from tests.oracle import Predicate, expected, row_ids

Rows = dict[int, Counter[int]]


@dataclass
class History:
    """The versions that may explain each stream row: those current from its push to its last result."""

    versions: list[Snapshot]
    pushed: dict[int, int]
    answered: dict[int, int]

    @classmethod
    def of(cls, first: Snapshot, steps: list[Step]) -> "History":
        history = cls([first], {}, {})
        for step in steps:
            if isinstance(step.item, Refresh):
                history.versions.append(step.item.snapshot)
            current = len(history.versions) - 1
            if isinstance(step.item, pa.RecordBatch):
                history.pushed |= dict.fromkeys(step.item["rid"].to_pylist(), current)
            for batch in step.batches:
                history.answered |= dict.fromkeys(batch["rid"].to_pylist(), current)
        return history

    def allowed(self, rid: int) -> range:
        # A row without results may have been answered at any time up to the end.
        return range(self.pushed[rid], self.answered.get(rid, len(self.versions) - 1) + 1)


def assert_versions_explain(
    subject: SemiStreamSubject,
    workload: Workload,
    script: list[Item],
    how: str,
    memory: int | None = None,
    **options: Any,
) -> None:
    """Each stream row's whole result is the oracle's on one version that was current for it."""
    room = subject.least(workload.snapshot, *(i.snapshot for i in script if isinstance(i, Refresh))) + 50_000
    operator = subject.make(
        workload.snapshot, memory or room, how=how, **workload.predicate.options, **options
    )
    try:
        schema = operator.schema_of(workload.stream.schema)
        steps = play(subject, operator, script)
    finally:
        operator.close()
    actual = collected((batch for step in steps for batch in step.batches), schema)
    history = History.of(workload.snapshot, steps)
    _assert_explained(actual, history, workload, how)


def _assert_explained(actual: pa.Table, history: History, workload: Workload, how: str) -> None:
    oracles = [
        expected(workload.stream, version.table, workload.predicate, how) for version in history.versions
    ]
    given, *wanted = _by_row([actual, *oracles])
    unknown = set(given) - set(history.pushed)
    assert not unknown, f"rows that were never pushed: {sorted(unknown)[:5]}"
    for rid in history.pushed:
        versions = history.allowed(rid)
        assert any(given[rid] == wanted[version][rid] for version in versions), (
            f"stream row {rid}: {given[rid].total()} rows that no version of {list(versions)} explains "
            f"(they would give {[wanted[version][rid].total() for version in versions]})"
        )


def _by_row(tables: list[pa.Table]) -> list[Rows]:
    grouped = []
    for table, ids in zip(tables, row_ids(tables), strict=True):
        rows: Rows = defaultdict(Counter)
        for rid, row_id in zip(table["rid"].to_pylist(), ids.tolist(), strict=True):
            rows[rid][row_id] += 1
        grouped.append(rows)
    return grouped


def shuffled_in(batches: list[Item], extras: list[Item], seed: int) -> list[Item]:
    """The batches in order, and the extras in order, mixed at random."""
    rng = np.random.default_rng(seed)
    turns = rng.permutation([0] * len(batches) + [1] * len(extras))
    sources = (iter(batches), iter(extras))
    return [next(sources[turn]) for turn in turns]


@SEMI_STREAM.check(how=HOWS, seed=range(6))
def check_updates_interleaved(subject: SemiStreamSubject, how: str, seed: int) -> None:
    workload = workloads.changing()
    refreshes: list[Item] = [Refresh(version) for version in workloads.versions_of_changing()]
    batch_rows = (1, 13, 40, 97, 200, 700)[seed]
    script = shuffled_in([*workload.batches(batch_rows)], refreshes, seed)
    assert_versions_explain(subject, workload, script, how)


@SEMI_STREAM.check(how=("inner", "left"), seed=range(3))
def check_updates_and_pauses(subject: SemiStreamSubject, how: str, seed: int) -> None:
    workload = workloads.changing()
    extras: list[Item] = []
    for version in workloads.versions_of_changing():
        extras += [Refresh(version), Pause(1.0)]
    script = shuffled_in([*workload.batches(31)], extras, seed)
    least = subject.least(workload.snapshot, *workloads.versions_of_changing())
    assert_versions_explain(subject, workload, script, how, memory=least)


@SEMI_STREAM.check(needs=["range"], how=("left", "semi"))
def check_updates_range(subject: SemiStreamSubject, how: str) -> None:
    base = workloads.changing()
    workload = Workload("changing range", base.snapshot, base.stream, Predicate("k", within=2))
    refreshes: list[Item] = [Refresh(version) for version in workloads.versions_of_changing()]
    assert_versions_explain(subject, workload, shuffled_in([*workload.batches(50)], refreshes, 1), how)


@SEMI_STREAM.check(how=HOWS)
def check_updates_groups(subject: SemiStreamSubject, how: str) -> None:
    """Groups that span many pages grow, shrink and disappear."""
    base = workloads.groups()
    refreshes: list[Item] = [Refresh(version) for version in workloads.versions_of_groups()]
    assert_versions_explain(subject, base, shuffled_in([*base.batches(9)], refreshes, 2), how)


@SEMI_STREAM.check(how=("left", "anti"))
def check_refresh_is_seen_at_once(subject: SemiStreamSubject, how: str) -> None:
    """A row pushed after the refresh sees the new version, even if its page was cached."""
    first = workloads.products(np.arange(1000))
    changes = pa.table(
        {
            "k": pa.array([500, 501, 2000]),
            "price": [1.0, 2.0, 3.0],
            "text": ["new", None, "new"],
            "_op": ["upsert", "delete", "upsert"],
        }
    )
    stream = workloads.sales([500, 501, 2000, 502] * 20)
    workload = Workload("hot before", first, stream, Predicate("k"))
    batches = workload.batches(8)
    script = [*batches[:5], Pause(1.0), Refresh(first.changed(changes)), *batches[5:]]
    assert_versions_explain(subject, workload, script, how)


@SEMI_STREAM.check()
def check_update_to_empty_and_back(subject: SemiStreamSubject) -> None:
    first = workloads.products(np.arange(40))
    rows = first.table
    gone = first.changed(rows.append_column("_op", pa.array(["delete"] * len(rows))))
    back = gone.changed(rows.append_column("_op", pa.array(["insert"] * len(rows))))
    workload = Workload("emptied", first, workloads.sales(np.arange(90) % 50), Predicate("k"))
    batches = workload.batches(30)
    script = [batches[0], Refresh(gone), batches[1], Pause(1.0), Refresh(back), batches[2]]
    assert_versions_explain(subject, workload, script, "left")


@SEMI_STREAM.check()
def check_refresh_without_rows(subject: SemiStreamSubject) -> None:
    """Several refreshes before the first batch, one of them to the same version."""
    workload = workloads.changing()
    versions = workloads.versions_of_changing()
    script = [Refresh(versions[0]), Refresh(versions[1]), Refresh(versions[1]), *workload.batches(300)]
    assert_versions_explain(subject, workload, script, "left")
