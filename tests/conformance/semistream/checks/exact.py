"""Results equal the oracle's, however the stream is cut into batches."""

import numpy as np
import pyarrow as pa

from tests.conformance.batches import cut_at
from tests.conformance.registry import SEMI_STREAM
from tests.conformance.semistream import workloads
from tests.conformance.semistream.snapshots import snapshot
from tests.conformance.semistream.subjects import SemiStreamSubject, answer, assert_exact
from tests.conformance.semistream.workloads import HOWS, SHAPES, Workload
from tests.oracle import Predicate, expected

BATCH_ROWS = (1, 2, 7, 49, 50, 51, 10_000)
EQUAL = ("usual", "groups", "hot_key")
RANGE = ("usual_range", "usual_between", "groups_range")


@SEMI_STREAM.check(how=HOWS, workload=EQUAL)
def check_oracle(subject: SemiStreamSubject, how: str, workload: str) -> None:
    assert_exact(subject, getattr(workloads, workload)(), how=how)


@SEMI_STREAM.check(needs=["range"], how=HOWS, workload=RANGE)
def check_range_oracle(subject: SemiStreamSubject, how: str, workload: str) -> None:
    assert_exact(subject, getattr(workloads, workload)(), how=how)


@SEMI_STREAM.check(how=HOWS, batch_rows=BATCH_ROWS)
def check_batch_rows(subject: SemiStreamSubject, how: str, batch_rows: int) -> None:
    workload = workloads.usual()
    assert_exact(subject, workload, workload.batches(batch_rows), how=how)


@SEMI_STREAM.check(needs=["range"], how=("left", "semi"), batch_rows=BATCH_ROWS)
def check_range_batch_rows(subject: SemiStreamSubject, how: str, batch_rows: int) -> None:
    workload = workloads.groups_range()
    assert_exact(subject, workload, workload.batches(batch_rows), how=how)


@SEMI_STREAM.check(how=HOWS, batch_rows=(1, 50))
def check_groups_batch_rows(subject: SemiStreamSubject, how: str, batch_rows: int) -> None:
    workload = workloads.groups()
    assert_exact(subject, workload, workload.batches(batch_rows), how=how)


@SEMI_STREAM.check(how=("left", "anti"))
def check_empty_batches(subject: SemiStreamSubject, how: str) -> None:
    workload = workloads.usual()
    cuts = [0, 0, 13, 13, 13, 400, 700, 700]
    assert_exact(subject, workload, cut_at(workload.stream, cuts), how=how)


@SEMI_STREAM.check(how=HOWS)
def check_no_batches(subject: SemiStreamSubject, how: str) -> None:
    assert len(answer(subject, workloads.usual(), [], how=how)) == 0


@SEMI_STREAM.check(how=HOWS, shape=SHAPES)
def check_shape(subject: SemiStreamSubject, how: str, shape: str) -> None:
    workload = workloads.shape(shape)
    assert_exact(subject, workload, workload.batches(50), how=how)


@SEMI_STREAM.check(needs=["range"], how=("left", "anti"), shape=[s for s in SHAPES if s != "all keys equal"])
def check_range_shape(subject: SemiStreamSubject, how: str, shape: str) -> None:
    base = workloads.shape(shape)
    workload = Workload(f"{shape}, within 1", base.snapshot, base.stream, Predicate("k", within=1))
    assert_exact(subject, workload, workload.batches(50), how=how)


@SEMI_STREAM.check(how=("inner", "left", "semi"))
def check_other_names(subject: SemiStreamSubject, how: str) -> None:
    """The stream names its key differently, and has another column with the name of the master's key."""
    base = workloads.usual()
    stream = base.stream.rename_columns(["rid", "product", "k"])
    assert_exact(subject, Workload("renamed", base.snapshot, stream, Predicate({"product": "k"})), how=how)


@SEMI_STREAM.check(how=HOWS)
def check_composite_names(subject: SemiStreamSubject, how: str) -> None:
    """One key column has the same name on both sides, the other does not."""
    base = workloads.of_key_type("int32+string")
    stream = base.stream.rename_columns(["rid", "k0", "label"])
    assert_exact(
        subject, Workload("composite", base.snapshot, stream, Predicate({"k0": "k0", "label": "k1"})), how=how
    )


@SEMI_STREAM.check(needs=["range"])
def check_range_names(subject: SemiStreamSubject) -> None:
    base = workloads.usual_range()
    stream = base.stream.rename_columns(["rid", "around", "price"])
    assert_exact(
        subject, Workload("around", base.snapshot, stream, Predicate({"around": "k"}, within=3)), how="left"
    )


@SEMI_STREAM.check(how=("inner", "left", "semi"), columns=((), ("price",), ("price", "text")))
def check_columns(subject: SemiStreamSubject, how: str, columns: tuple[str, ...]) -> None:
    assert_exact(subject, workloads.usual(), how=how, columns=list(columns))


@SEMI_STREAM.check(needs=["range"], columns=(("k",), ("text",)))
def check_range_columns(subject: SemiStreamSubject, columns: tuple[str, ...]) -> None:
    assert_exact(subject, workloads.usual_range(), how="left", columns=list(columns))


@SEMI_STREAM.check(suffix=("_master", "_m", " of the master"))
def check_suffix(subject: SemiStreamSubject, suffix: str) -> None:
    base = workloads.usual()
    stream = base.stream.append_column("price", pa.array(np.arange(len(base.stream))))
    assert_exact(subject, Workload("clash", base.snapshot, stream, base.predicate), how="left", suffix=suffix)


@SEMI_STREAM.check()
def check_suffix_default(subject: SemiStreamSubject) -> None:
    base = workloads.usual()
    stream = base.stream.append_column("text", pa.array(["mine"] * len(base.stream)))
    workload = Workload("clash", base.snapshot, stream, base.predicate)
    rows = answer(subject, workload, workload.batches())
    assert rows.column_names == ["rid", "k", "amount", "text", "price", "text_master"]


@SEMI_STREAM.check(how=("inner", "anti"))
def check_key_alone(subject: SemiStreamSubject, how: str) -> None:
    """Neither side has any column but its key."""
    held = snapshot(pa.table({"k": pa.array(np.arange(0, 2000, 2))}), "k")
    stream = pa.table({"k": pa.array(np.arange(300) % 90)})
    assert_exact(subject, Workload("keys alone", held, stream, Predicate("k")), how=how)


@SEMI_STREAM.check(how=("inner", "left"))
def check_filter(subject: SemiStreamSubject, how: str) -> None:
    """A membership filter does not change the results."""
    rng = np.random.default_rng(8)
    held = workloads.products(np.arange(0, 3000, 3), filter_bits=12)
    stream = workloads.sales(rng.integers(0, 3000, 600))
    assert_exact(subject, Workload("filter", held, stream, Predicate("k")), how=how)


@SEMI_STREAM.check(needs=["filter"])
def check_filter_saves_reads(subject: SemiStreamSubject) -> None:
    held = workloads.products(np.arange(0, 3000, 3), filter_bits=12)
    stream = workloads.sales(np.arange(1, 3000, 3))
    workload = Workload("absent keys", held, stream, Predicate("k"))
    operator = subject.make(held, how="anti", on="k")
    for batch in workload.batches(10):
        list(operator.push(batch))
    list(operator.finish())
    pages_read = operator.metrics()["pages_read"]
    operator.close()
    assert len(expected(stream, held.table, workload.predicate, "anti")) == 1000
    assert pages_read <= held.master.pages // 4, (
        f"{pages_read} of {held.master.pages} pages read for absent keys"
    )
