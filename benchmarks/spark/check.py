"""Compares rows with an oracle, and plans with what a contender claims to be."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import duckdb

from benchmarks.spark.contenders.contender import MASTER_COLUMNS, OUTPUT_COLUMNS, Contender, PlanRule
from benchmarks.spark.contenders.identity import CONSTANTS

_MEMORY = "2GB"
_SQL_TYPES: dict[type, str] = {int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}


class CheckError(AssertionError):
    """The measurement is not of what it should be."""


@dataclass(frozen=True)
class Tally:
    """The number of rows, and the sum of their hashes over all columns, in any order."""

    rows: int
    checksum: str


def of_files(folder: Path) -> Tally:
    """The rows that a contender wrote."""
    columns = ", ".join(OUTPUT_COLUMNS)
    return _tally(f"SELECT {columns} FROM read_parquet('{folder}/*.parquet')")


def of_join(sales: Path, master: Path) -> Tally:
    """The rows of DuckDB's join."""
    found = ", ".join(f"m.{name}" for name in MASTER_COLUMNS)
    return _tally(
        f"SELECT s.*, {found} FROM read_parquet('{sales}/*.parquet') AS s "
        f"JOIN read_parquet('{master}/*.parquet') AS m ON m.key = s.key"
    )


def of_identity(sales: Path) -> Tally:
    """The rows of an identity as wide as a join."""
    constants = ", ".join(f"{value!r}::{_SQL_TYPES[type(value)]}" for value in CONSTANTS.values())
    return _tally(f"SELECT s.*, {constants} FROM read_parquet('{sales}/*.parquet') AS s")


def _tally(query: str) -> Tally:
    with duckdb.connect() as connection:
        connection.execute(f"SET memory_limit = '{_MEMORY}'")
        columns = ", ".join(OUTPUT_COLUMNS)
        found = connection.execute(
            f"SELECT count(*), sum(hash({columns})::HUGEINT) FROM ({query}) AS answer({columns})"
        ).fetchone()
    rows, checksum = found or (0, None)
    return Tally(int(rows), str(checksum or 0))


def settle(who: str, expected: Tally, actual: Tally) -> None:
    """Reject a contender whose rows differ."""
    if expected != actual:
        raise CheckError(f"{who}: expected {expected}, got {actual}")


def check_plan(contender: type[Contender], plan: str) -> None:
    """Reject a contender that Spark did not run as its name says."""
    check_plan_of(contender.name, contender.plan, plan)


def check_plan_of(who: str, rule: PlanRule, plan: str) -> None:
    """Reject a plan that does not follow the rule."""
    missing = [word for word in rule.has if word not in plan]
    surplus = [word for word in rule.lacks if word in plan]
    if missing or surplus:
        raise CheckError(f"{who}: the plan lacks {missing} and has {surplus}:\n{plan}")


def check_rows(who: str, batch_rows: int, rows_out: Iterable[int]) -> None:
    """Every key of the stream is in the master once, so a micro-batch returns as many rows as it receives.

    Spark's own input count is no help: it counts rows twice if they are sampled for routing.
    """
    for number, rows in enumerate(rows_out):
        if rows != batch_rows:
            raise CheckError(f"{who}: batch {number} returned {rows} rows instead of {batch_rows}")
