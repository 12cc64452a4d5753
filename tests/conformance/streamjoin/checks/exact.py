"""Results equal the oracle's, in whatever order and batches the inputs arrive."""

import numpy as np
import pyarrow as pa

from adjoin import Pause
from tests.conformance.batches import as_batch, cut_at
from tests.conformance.registry import STREAM_JOIN
from tests.conformance.streamjoin import workloads
from tests.conformance.streamjoin.subjects import (
    AMPLE,
    LONG_SECONDS,
    Join,
    StreamJoinSubject,
    answer,
    assert_exact,
    play,
    watched,
)
from tests.conformance.streamjoin.workloads import (
    ORDERS,
    SHAPES,
    Arrival,
    Workload,
    arranged,
    of_keys,
    two,
    with_pauses,
)
from tests.conformance.subjects import collected
from tests.oracle import Predicate, assert_same_rows

BATCH_ROWS = (1, 2, 7, 49, 50, 51, 10_000)
EQUAL = ("usual", "hot_key", "growing", "string_key", "composite_key")
RANGE = ("usual_within", "usual_between")
THREE = ("chain", "one_key_for_all")
SIDES = ("left", "right")
MEMORY = {"on disk": {}, "in memory": {"memory": AMPLE}}


@STREAM_JOIN.check(workload=EQUAL, order=ORDERS)
def check_oracle(subject: StreamJoinSubject, workload: str, order: str) -> None:
    held = getattr(workloads, workload)()
    assert_exact(subject, held, held.script(order=order))


@STREAM_JOIN.check(workload=EQUAL)
def check_oracle_in_memory(subject: StreamJoinSubject, workload: str) -> None:
    """Inputs that fit in memory are not spilled."""
    held = getattr(workloads, workload)()
    found, metrics = answer(subject, held, memory=AMPLE)
    assert_same_rows(found, subject.expected(held), workload)
    assert metrics["blocks_flushed"] == 0


@STREAM_JOIN.check(batch_rows=BATCH_ROWS, where=MEMORY)
def check_batch_rows(subject: StreamJoinSubject, batch_rows: int, where: str) -> None:
    held = workloads.usual()
    assert_exact(subject, held, held.script(batch_rows), **MEMORY[where])


@STREAM_JOIN.check(needs=["range"], workload=RANGE, order=ORDERS)
def check_range_oracle(subject: StreamJoinSubject, workload: str, order: str) -> None:
    held = getattr(workloads, workload)()
    assert_exact(subject, held, held.script(order=order))


@STREAM_JOIN.check(needs=["range"], workload=RANGE, batch_rows=(1, 7, 50, 10_000), where=MEMORY)
def check_range_batch_rows(subject: StreamJoinSubject, workload: str, batch_rows: int, where: str) -> None:
    held = getattr(workloads, workload)()
    assert_exact(subject, held, held.script(batch_rows, "random"), **MEMORY[where])


@STREAM_JOIN.check(order=("in turn", "random"))
def check_empty_batches(subject: StreamJoinSubject, order: str) -> None:
    held = workloads.usual()
    cuts = [0, 0, 13, 13, 13, 200, 320, 320]
    batches: dict[str, list[Arrival]] = {
        name: [(name, batch) for batch in cut_at(table, cuts)] for name, table in held.inputs.items()
    }
    assert_exact(subject, held, arranged(batches, order))


@STREAM_JOIN.check(pauses=(0, 2))
def check_no_batches(subject: StreamJoinSubject, pauses: int) -> None:
    found, _ = answer(subject, workloads.usual(), [Pause(1.0)] * pauses)
    assert len(found) == 0


@STREAM_JOIN.check(side=SIDES)
def check_one_side_empty(subject: StreamJoinSubject, side: str) -> None:
    """Rows of one side alone produce no results, not even empty batches."""
    held = workloads.usual()
    join = subject.make(held)
    script: list[Arrival] = [*by_side(held)[side]]
    assert play(join, with_pauses(script, 3, 0.1)) == []
    join.close()


@STREAM_JOIN.check(side=SIDES, where=MEMORY)
def check_side_ends_early(subject: StreamJoinSubject, side: str, where: str) -> None:
    """One input ends before most of the other has arrived."""
    held = workloads.usual()
    other = "right" if side == "left" else "left"
    rows = by_side(held)
    ended: list[Arrival] = [(side, None)]
    items = [*rows[other][:2], *rows[side], *ended, Pause(0.05), *rows[other][2:]]
    assert_exact(subject, held, items, **MEMORY[where])


@STREAM_JOIN.check(needs=["spill"], every=(1, 3), seconds=(0.01, 0.3), order=("in turn", "left first"))
def check_pauses(subject: StreamJoinSubject, every: int, seconds: float, order: str) -> None:
    """Joining on disk starts, is interrupted by arriving rows and resumes."""
    held = workloads.usual()
    assert_exact(subject, held, with_pauses(held.script(order=order), every, seconds))


@STREAM_JOIN.check(needs=["range", "spill"], workload=RANGE, seconds=(0.01, 0.3))
def check_range_pauses(subject: StreamJoinSubject, workload: str, seconds: float) -> None:
    held = getattr(workloads, workload)()
    assert_exact(subject, held, with_pauses(held.script(order="random"), 2, seconds))


@STREAM_JOIN.check(needs=["reactive"])
def check_long_pause_joins_what_is_on_disk(subject: StreamJoinSubject) -> None:
    held = workloads.usual()
    _, metrics = answer(subject, held, [*held.script(), Pause(LONG_SECONDS)])
    assert metrics["results_reactive"] > 0


@STREAM_JOIN.check(where=MEMORY)
def check_offer_while_results_are_consumed(subject: StreamJoinSubject, where: str) -> None:
    """Rows offered between two results are joined like all others; refused ones are offered again."""
    held = workloads.usual()
    join = subject.make(held, **MEMORY[where])
    rows = {name: list(batches) for name, batches in by_side(held, 5).items()}
    found: list[pa.RecordBatch] = []
    offered = 0
    for _, batch in rows["left"]:
        for result in join.push("left", batch):
            found.append(result)
            offered += _offered(join, rows["right"])
        offered += _offered(join, rows["right"])
        found += watched(join, join.idle(0.05))
    for item in rows["right"]:
        found += watched(join, join.push(*item))
    found += watched(join, join.finish())
    results = collected(found, join.schema)
    metrics = join.metrics()
    join.close()
    assert offered > 0
    assert metrics["input_buffer_rows_max"] > 0
    assert_same_rows(results, subject.expected(held), "some rows were offered")


def by_side(held: Workload, batch_rows: int = 40) -> dict[str, list[tuple[str, pa.RecordBatch]]]:
    rows: dict[str, list[tuple[str, pa.RecordBatch]]] = {name: [] for name in held.inputs}
    for item in held.script(batch_rows):
        assert isinstance(item, tuple)
        assert item[1] is not None
        rows[item[0]].append((item[0], item[1]))
    return rows


def _offered(join: Join, rows: list[tuple[str, pa.RecordBatch]]) -> int:
    """Offer the next batch; 1 if it was accepted, else 0."""
    if rows and join.offer(*rows[0]):
        del rows[0]
        return 1
    return 0


@STREAM_JOIN.check(shape=SHAPES, order=("in turn", "right first"))
def check_shape(subject: StreamJoinSubject, shape: str, order: str) -> None:
    held = workloads.shape(shape)
    assert_exact(subject, held, with_pauses(held.script(order=order), 2, 0.1))


@STREAM_JOIN.check(needs=["range"], shape=[name for name in SHAPES if name != "all keys equal"])
def check_range_shape(subject: StreamJoinSubject, shape: str) -> None:
    held = of_keys(f"{shape}, within 1", SHAPES[shape], Predicate("k", within=1), spills=False)
    assert_exact(subject, held)


@STREAM_JOIN.check()
def check_other_names(subject: StreamJoinSubject) -> None:
    """The left names its key differently, and has another column with the name of the right's key."""
    left, right = workloads.usual().inputs.values()
    left = left.rename_columns(["product", "k", "note"])
    assert_exact(subject, two("renamed", (left, right), Predicate({"product": "k"})))


@STREAM_JOIN.check()
def check_composite_names(subject: StreamJoinSubject) -> None:
    """One key column has the same name on both sides, the other does not."""
    left, right = workloads.composite_key().inputs.values()
    left = left.rename_columns(["a", "label", "l_number", "note"])
    assert_exact(subject, two("composite", (left, right), Predicate({"a": "a", "label": "b"})))


@STREAM_JOIN.check(needs=["range"])
def check_range_names(subject: StreamJoinSubject) -> None:
    left, right = workloads.usual_within().inputs.values()
    left = left.rename_columns(["around", "r_number", "note"])
    assert_exact(subject, two("around", (left, right), Predicate({"around": "k"}, within=2)))


@STREAM_JOIN.check(needs=["two inputs"], suffix=("_right", "_r", " of the right"))
def check_suffix(subject: StreamJoinSubject, suffix: str) -> None:
    assert_exact(subject, workloads.usual(), suffix=suffix)


@STREAM_JOIN.check(needs=["two inputs"])
def check_suffix_default(subject: StreamJoinSubject) -> None:
    found, _ = answer(subject, workloads.usual())
    assert found.column_names == ["k", "l_number", "note", "r_number", "note_right"]


@STREAM_JOIN.check(needs=["two inputs", "range"])
def check_range_keeps_both_keys(subject: StreamJoinSubject) -> None:
    found, _ = answer(subject, workloads.usual_within())
    assert found.column_names == ["k", "l_number", "note", "k_right", "r_number", "note_right"]


@STREAM_JOIN.check(needs=["many inputs"])
def check_names_tell_the_relation(subject: StreamJoinSubject) -> None:
    found, _ = answer(subject, workloads.usual())
    assert found.column_names == [
        *("left_k", "left_l_number", "left_note"),
        *("right_k", "right_r_number", "right_note"),
    ]


@STREAM_JOIN.check(chosen=((0,), (1, 3), (4, 0)))
def check_columns(subject: StreamJoinSubject, chosen: tuple[int, ...]) -> None:
    """Results have only the chosen columns, in their usual order."""
    held = workloads.usual()
    whole = subject.expected(held)
    names = [whole.column_names[at] for at in chosen]
    found, _ = answer(subject, held, columns=names)
    assert_same_rows(found, whole.select([n for n in whole.column_names if n in names]), f"columns {names}")


@STREAM_JOIN.check()
def check_key_alone(subject: StreamJoinSubject) -> None:
    """Neither side has any column but its key."""
    left = pa.table({"k": np.arange(300) % 90})
    right = pa.table({"k": np.arange(0, 200, 2)})
    assert_exact(subject, two("keys alone", (left, right), Predicate("k"), spills=False))


@STREAM_JOIN.check(needs=["many inputs"], workload=THREE, order=ORDERS)
def check_three_inputs(subject: StreamJoinSubject, workload: str, order: str) -> None:
    held = getattr(workloads, workload)()
    assert_exact(subject, held, held.script(order=order))


@STREAM_JOIN.check(needs=["many inputs"], workload=THREE, batch_rows=(1, 50, 10_000), where=MEMORY)
def check_three_batch_rows(subject: StreamJoinSubject, workload: str, batch_rows: int, where: str) -> None:
    held = getattr(workloads, workload)()
    assert_exact(subject, held, with_pauses(held.script(batch_rows, "random"), 40, 0.3), **MEMORY[where])


@STREAM_JOIN.check(needs=["many inputs"], empty=("r1", "r2", "r3"))
def check_three_inputs_one_empty(subject: StreamJoinSubject, empty: str) -> None:
    held = workloads.chain()
    script = [item for item in held.script() if isinstance(item, tuple) and item[0] != empty]
    found, _ = answer(subject, held, [*script, (empty, as_batch(held.inputs[empty].slice(0, 0)))])
    assert len(found) == 0
