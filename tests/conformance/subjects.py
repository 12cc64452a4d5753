"""What is under test: an operator, and what it promises."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from tests.oracle import assert_same_schema


class Accounting(Protocol):
    """An operator that keeps accounts of its memory."""

    def metrics(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Subject:
    """An operator under test.

    Attributes:
        name: Shown in the test's id.
        kind: The class.
        able: What it can do that not every operator of its family can. A check says what it needs.
        all_types: Whether it runs the whole type matrix, see `registry.dealt`.
        quick_one_in: `make test` runs one case in this many, `make test-slow` all others.
        leads: Whether `make test` runs every check on it, with one setting at least.
    """

    name: str
    kind: Callable[..., Any] = field(repr=False)
    able: frozenset[str] = frozenset()
    all_types: bool = False
    quick_one_in: int = 12
    leads: bool = False


def assert_within_budget(operator: Accounting) -> None:
    metrics = operator.metrics()
    assert metrics["peak_bytes"] <= metrics["memory_bytes"], (
        f"{metrics['peak_bytes']} bytes accounted of {metrics['memory_bytes']} given"
    )


def assert_sound(operator: Accounting) -> None:
    """The operator's own invariants hold, if it can check them."""
    check_invariants = getattr(operator, "check_invariants", None)
    if check_invariants is not None:
        check_invariants()


def collected(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """The batches as one table; each of them must have the schema that was promised."""
    held = list(batches)
    for batch in held:
        assert_same_schema(batch.schema, schema)
        batch.validate(full=True)
    return pa.Table.from_batches([pa.RecordBatch.from_arrays(b.columns, schema=schema) for b in held], schema)
