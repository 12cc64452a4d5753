"""A memory that the constructor accepts is enough to the end; rows that do not fit are refused."""

import re
from dataclasses import replace
from itertools import cycle, product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin import BudgetError
from adjoin.streamjoin.disk.spill_file import CHUNK_ENTRIES
from tests.unit.streamjoin.inputs import each
from tests.unit.streamjoin.memorygrid import (
    CONDITIONS,
    MANY_INPUTS,
    SKEWS,
    SPILLING,
    TWO_INPUTS,
    WIDTHS,
    Case,
    check,
    keys_of,
    least_memory,
    make,
)

MULTIPLES = (1, 1.01, 1.1, 1.5, 2)
SIZES = (1 << 20, 1_140_000, 4 << 20)


def conditions_of(name: str) -> list[str]:
    if name in ("diner", "pmj"):
        return list(CONDITIONS)
    return ["equality", "band"] if name == "miner" else ["equality"]


@pytest.mark.parametrize("name", each(SPILLING))
def test_the_least_memory_is_enough_to_the_end(name):
    least = least_memory(name, "186+916")
    for number, (memory, skew) in enumerate(zip((least, least + 1), ("uniform", "distinct"), strict=True)):
        case = Case(name, memory, "186+916", skew, rows=600, batch_rows=300, has_pauses=number > 0)
        assert check(case)["blocks_flushed"] > 20


@pytest.mark.parametrize("name", [*TWO_INPUTS, *MANY_INPUTS])
def test_no_memory_above_the_least_is_refused(name):
    """What is accepted has no gaps, and the error names exactly the least."""
    schemas = Case(name, 0).schemas()
    least = least_memory(name)
    for memory in [*range(least, least + 30), *range(least, least + 100_000, 997), 1 << 20]:
        make(name, schemas, memory, "equality").close()
    with pytest.raises(BudgetError, match=f"give memory={least} or more"):
        make(name, schemas, least - 1, "equality")
    assert least < 500_000


@pytest.mark.parametrize("name", SPILLING)
def test_a_row_that_does_not_fit_is_refused_and_the_join_continues(name):
    case = Case(name, 1 << 20, "mixed", rows=1)
    with case.join() as join:
        largest = join.metrics()["largest_row_bytes"]
        rows = [row(name, join, "left", 1, largest), row(name, join, "left", 2, largest)]
        too_large = row(name, join, "left", 1, largest + 1)
        found = list(join.push("left", rows[0]))
        for call in (join.push, join.offer):
            with pytest.raises(BudgetError, match="nothing of the batch was taken") as refused:
                call("left", too_large)
        found += list(join.push("left", rows[1]))
        for side in list(case.schemas())[1:]:
            found += list(join.push(side, row(name, join, side, 1, 100)))
        found += list(join.finish())
        assert sum(batch.num_rows for batch in found) == 1
    enough = re.search(r"give memory=(\d+)", str(refused.value))
    assert enough is not None
    with Case(name, int(enough[1]), "mixed").join() as join:
        list(join.push("left", too_large))
        list(join.finish())


def row(name: str, join: Any, side: str, key: int, size: int) -> pa.RecordBatch:
    """A row of this size: two numbers, a string, 4 bytes for its offset and three validity bits."""
    schema = Case(name, 0, "mixed").schemas()[side]
    text = "x" * (size - 8 - 8 - 4 - 1)
    return pa.RecordBatch.from_pylist([{"k": key, schema.names[1]: 0, schema.names[2]: text}], schema)


def test_errors_name_the_block_size_that_the_caller_chose():
    with pytest.raises(BudgetError, match=r"with blocks of 65536 bytes.*give memory=(\d+)") as refused:
        make("diner", Case("diner", 0).schemas(), 500_000, "equality", block_bytes=65_536)
    enough = int(re.findall(r"memory=(\d+)", str(refused.value))[-1])
    make("diner", Case("diner", 0).schemas(), enough, "equality", block_bytes=65_536).close()
    with make("diner", Case("diner", 0).schemas(), 1 << 20, "equality", block_bytes=4096) as join:
        with pytest.raises(BudgetError, match=r"give block_bytes=(\d+) and memory=(\d+), or more") as refused:
            join.push("left", row("diner", join, "left", 1, 30_000))
        block_bytes, memory = map(int, re.findall(r"=(\d+)", str(refused.value))[-2:])
        too_large = row("diner", join, "left", 1, 30_000)
    options = {"block_bytes": block_bytes}
    with make("diner", Case("diner", 0).schemas(), memory, "equality", **options) as join:
        list(join.push("left", too_large))


@pytest.mark.parametrize("name", each(["diner", "xjoin", "hmj", "rpj", "miner"]))
def test_far_more_blocks_than_the_directory_holds_in_memory(name):
    """Also where reactive phases do more work than there is room to record."""
    case = Case(name, least_memory(name, "916"), "916", "growing", rows=1_200, batch_rows=300)
    case = replace(case, has_pauses=name != "miner")
    metrics = check(case)
    with case.join() as join:
        assert metrics["blocks_flushed"] > 2 * join._storage.sizes.directory_chunks * CHUNK_ENTRIES


def grid() -> list[Case]:
    """Every operator, condition, width and skew; memory, batch size and pauses vary."""
    memories = cycle([*MULTIPLES, *SIZES])
    batches, pauses, seed = cycle([1_500, 7, 300]), cycle([True, False]), 0
    cases = []
    for name in SPILLING:
        for condition, width, skew in product(conditions_of(name), WIDTHS, SKEWS):
            seed += 1
            memory = next(memories)
            batch_rows = next(batches)
            rows = 150 if batch_rows == 7 else 1_500
            rows //= 3 if name in MANY_INPUTS else 1
            cases.append(
                Case(name, memory, width, skew, condition, rows, batch_rows, next(pauses), seed)  # type: ignore[arg-type]
            )
    return cases


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SPILLING)
def test_the_grid(name, width):
    least = {condition: least_memory(name, width, condition) for condition in conditions_of(name)}
    for case in (case for case in grid() if (case.name, case.width) == (name, width)):
        lowest = least[case.condition]
        memory = case.memory if case.memory > 100 else int(case.memory * lowest)
        check(replace(case, memory=max(memory, lowest)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "memory", "width", "skew", "rows"),
    [
        ("rpj", 1_140_000, "186", "distinct", 100_000),
        ("diner", 300_000, "186+916", "uniform", 12_000),
        ("diner", 4 << 20, "186+916", "distinct", 300_000),
        ("rpj", 4 << 20, "8", "growing", 300_000),
        ("hmj", 4 << 20, "186", "unmatched", 300_000),
        ("xjoin", 4 << 20, "186", "uniform", 300_000),
        ("pmj", 4 << 20, "186", "distinct", 300_000),
        ("miner", 4 << 20, "8", "distinct", 300_000),
        ("mjoin", 4 << 20, "8", "growing", 100_000),
    ],
)
def test_long_runs(name, memory, width, skew, rows):
    case = Case(name, memory, width, skew, rows=rows, batch_rows=5_000, has_pauses=False)
    assert check(case)["blocks_flushed"] > 50


def test_the_keys_of_the_grid_match_their_names():
    random = np.random.default_rng(1)
    drawn = {skew: keys_of(skew, 0, 5_000, 0, 5_000, random) for skew in SKEWS}
    assert len(np.unique(drawn["distinct"])) == 5_000
    assert len(np.unique(drawn["one key"])) == 1
    assert np.bincount(np.unique(drawn["zipf"], return_inverse=True)[1]).max() > 20
    assert not set(drawn["unmatched"]) & set(keys_of("unmatched", 1, 5_000, 0, 5_000, random))
