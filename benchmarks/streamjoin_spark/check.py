"""The rows that must come out, from DuckDB, and whether they did."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb

from benchmarks.spark.check import CheckError
from benchmarks.streamjoin_spark.shapes import Shape

_MEMORY = "4GB"


@dataclass(frozen=True)
class Tally:
    """What is known of some result rows, in any order.

    Attributes:
        rows: How many.
        pairs: The sum of `Shape.pairs`: which rows have met.
        values: The sum of `Shape.values`: what was returned for them; 0 where nothing but Spark can tell.
    """

    rows: int = 0
    pairs: int = 0
    values: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.rows + other.rows, self.pairs + other.pairs, self.values + other.values)


def of_inputs(shape: Shape, folder: Path) -> Tally:
    """The complete join, by DuckDB."""
    tables = ", ".join(f"read_parquet('{folder}/{name}/*.parquet') AS {name}" for name in shape.inputs)
    with duckdb.connect() as connection:
        connection.execute(f"SET memory_limit = '{_MEMORY}'")
        connection.execute(f"SET temp_directory = '{folder}'")
        found = connection.execute(
            f"SELECT count(*), coalesce(sum({shape.pairs()}), 0) FROM {tables} WHERE {shape.condition}"
        ).fetchone()
    rows, pairs = found or (0, 0)
    return Tally(int(rows), int(pairs))


def settle(who: str, expected: Tally, actual: Tally) -> None:
    """Reject a contender whose rows are not the oracle's."""
    if expected.rows == 0:
        raise CheckError(f"{who}: the inputs have no partners at all, so nothing can be checked")
    if (expected.rows, expected.pairs) != (actual.rows, actual.pairs):
        raise CheckError(f"{who}: expected {expected}, got {actual}")


def agree(tallies: Iterable[tuple[str, list[Tally]]]) -> None:
    """Reject contenders whose rows differ in any micro-batch, or in any column."""
    (first, expected), *others = tallies
    for name, actual in others:
        for number, (one, other) in enumerate(zip(expected, actual, strict=True)):
            if one != other:
                raise CheckError(f"micro-batch {number}: {first} returned {one}, {name} returned {other}")


def check_conf(who: str, conf: Mapping[str, str], offsets: str) -> None:
    """Reject a query that ran with other settings than its contender's, as its log of offsets tells."""
    ran: dict[str, str] = json.loads(offsets.splitlines()[1])["conf"]
    others = {name: ran[name] for name, value in conf.items() if ran.get(name, value) != value}
    if others or not set(conf) & set(ran):
        raise CheckError(f"{who}: the query ran with {others or ran} instead of {dict(conf)}")
