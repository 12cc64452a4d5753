from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.spark.check import CheckError
from benchmarks.streamjoin_spark import check
from benchmarks.streamjoin_spark.cases import Case, full_cases
from benchmarks.streamjoin_spark.check import Tally
from benchmarks.streamjoin_spark.datasets import Inputs, as_records
from benchmarks.streamjoin_spark.shapes import BOUND_SECONDS, DELAY_SECONDS, ROW_BYTES, WITHIN

CASES = {f"{each.setting}, {each.name}": each for each in full_cases()}


def small(name: str) -> Case:
    return replace(CASES[name], batch_rows=300, batch_seconds=900, warm_batches=6, batches=4)


def tables(folder: Path, case: Case) -> dict[str, pa.Table]:
    found = {}
    for name in case.join.inputs:
        files = sorted((folder / name).iterdir(), key=lambda file: file.stat().st_mtime)
        assert [pq.read_metadata(file).num_rows for file in files] == [case.batch_rows] * case.all_batches
        found[name] = pa.concat_tables([pq.read_table(file) for file in files])
    return found


def column(table: pa.Table, name: str) -> np.ndarray:
    values = table[name].combine_chunks()
    return values.cast(pa.int64()).to_numpy() if pa.types.is_timestamp(values.type) else values.to_numpy()


def tally(case: Case, pairs: Sequence[tuple[int, ...]]) -> Tally:
    total = 0
    for first, *others in pairs:
        mixed = first
        for row in others:
            mixed = (mixed * 1_000_003 + row) % 2_147_483_647
        total += mixed
    return Tally(len(pairs), total)


@pytest.mark.parametrize("name", CASES)
def test_every_input_has_the_columns_of_its_shape_and_rows_of_the_same_size(tmp_path, name):
    case = small(name)
    for side, table in tables(Inputs(tmp_path, case, 1).written(), case).items():
        assert table.column_names == case.join.columns(side)
        *numbers, payload = table.columns
        assert 8 * len(numbers) + len(payload[0].as_py()) == ROW_BYTES
        (row,) = (each for each in case.join.rows if each in table.column_names)
        assert (column(table, row) == np.arange(table.num_rows)).all()


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.join.times])
def test_no_row_is_late_although_rows_are_out_of_order(tmp_path, name):
    case = small(name)
    read = tables(Inputs(tmp_path, case, 1).written(), case)
    for side, time in case.join.times.items():
        times = column(read[side], time)
        behind = np.maximum.accumulate(times) - times
        assert 0 < behind.max() < DELAY_SECONDS * 1_000_000


@pytest.mark.parametrize("keys", ["random", "growing"])
def test_the_oracle_of_an_equality_join_is_a_dictionary(tmp_path, keys):
    case = small(f"state, equality, {keys}")
    folder = Inputs(tmp_path, case, 1).written()
    orders, payments = tables(folder, case).values()
    ids = column(orders, "order_id")
    assert len(set(ids)) == len(ids)
    follows_time = abs(np.corrcoef(ids.astype(float), np.arange(len(ids)))[0, 1])
    assert follows_time > 0.99 if keys == "growing" else follows_time < 0.1
    ordered = dict(zip(ids, zip(column(orders, "ordered_at"), range(len(ids)), strict=True), strict=True))
    pairs, too_late = [], 0
    for row, (order, paid) in enumerate(
        zip(column(payments, "order_id"), column(payments, "paid_at"), strict=True)
    ):
        if order in ordered:
            lag = paid - ordered[order][0]
            assert lag >= 0
            too_late += int(lag > BOUND_SECONDS * 1_000_000)
            if lag <= BOUND_SECONDS * 1_000_000:
                pairs.append((ordered[order][1], row))
    assert too_late > 0
    assert len(pairs) > len(ids) / 2
    check.settle("it", tally(case, pairs), check.of_inputs(case.join, folder))


def test_the_oracle_of_a_band_join_is_a_nested_loop(tmp_path):
    case = small("band, band, random")
    folder = Inputs(tmp_path, case, 1).written()
    offers, bids = tables(folder, case).values()
    lag = column(bids, "bid_at")[None] - column(offers, "offered_at")[:, None]
    apart = np.abs(column(bids, "price")[None] - column(offers, "price")[:, None])
    pairs = np.argwhere((apart <= WITHIN) & (lag >= 0) & (lag <= BOUND_SECONDS * 1_000_000))
    assert (apart == WITHIN).any()
    check.settle("it", tally(case, [*map(tuple, pairs.tolist())]), check.of_inputs(case.join, folder))


@pytest.mark.parametrize(("keys", "matches"), [("short", 1.0), ("1 % long", 2.0)])
def test_the_oracle_of_a_range_join_is_a_nested_loop(tmp_path, keys, matches):
    case = small(f"range, range, {keys}")
    folder = Inputs(tmp_path, case, 1).written()
    points, spans = tables(folder, case).values()
    at = column(points, "position")[:, None]
    pairs = np.argwhere((at >= column(spans, "lower")[None]) & (at <= column(spans, "upper")[None]))
    assert len(pairs) / points.num_rows == pytest.approx(matches, rel=0.3)
    check.settle("it", tally(case, [*map(tuple, pairs.tolist())]), check.of_inputs(case.join, folder))


def test_the_oracle_of_a_chain_follows_its_keys(tmp_path):
    case = small("chain, chain, random")
    folder = Inputs(tmp_path, case, 1).written()
    first, *others = tables(folder, case).values()
    chains = [
        (int(row), {"a": int(key)})
        for key, row in zip(column(first, "a"), column(first, "row1"), strict=True)
    ]
    results: list[tuple[tuple[int, ...], dict[str, int]]] = [((row,), keys) for row, keys in chains]
    for number, table in enumerate(others, 2):
        key, *more = table.column_names[:-2]
        rows = {value: at for at, value in enumerate(column(table, key).tolist())}
        results = [
            (
                (*found, rows[keys[key]]),
                {name: int(column(table, name)[rows[keys[key]]]) for name in more},
            )
            for found, keys in results
        ]
        assert number == len(results[0][0])
    check.settle("it", tally(case, [rows for rows, _ in results]), check.of_inputs(case.join, folder))


def test_records_are_the_same_rows_in_big_endian_with_milliseconds(tmp_path):
    case = small("large, equality, random")
    inputs = Inputs(tmp_path, case, 1)
    orders = tables(inputs.written(), case)["orders"]
    written = inputs.records()["orders"].read_bytes()
    assert written == b"".join(as_records(part) for part in (orders.slice(0, 7), orders.slice(7)))
    number, row = 5, written[500:600]
    assert int.from_bytes(row[:8], "big", signed=True) == orders["order_id"][number].as_py()
    assert int.from_bytes(row[8:16], "big") * 1000 == column(orders, "ordered_at")[number]
    assert int.from_bytes(row[16:24], "big") == number
    assert row[24:].decode() == orders["order_payload"][number].as_py()


def test_state_is_what_the_watermark_before_the_last_micro_batch_keeps(tmp_path):
    case = replace(small("state, equality, random"), warm_batches=8, memory_share=0.1)
    read = tables(Inputs(tmp_path, case, 1).written(), case)
    times = {side: column(read[side], time) / 1_000_000 for side, time in case.join.times.items()}
    watermark = min(each[: -case.batch_rows].max() for each in times.values()) - DELAY_SECONDS
    kept = (times["orders"] > watermark - BOUND_SECONDS).sum() + (times["payments"] > watermark).sum()
    assert case.state_rows == pytest.approx(kept, rel=0.03)
    assert case.memory_bytes == pytest.approx(kept * ROW_BYTES / 10, rel=0.03)


@pytest.mark.parametrize("case", [case for case in CASES.values() if case.join.times])
def test_state_is_full_before_times_are_taken(case):
    assert case.warm_batches * case.batch_seconds > BOUND_SECONDS + case.batch_seconds + DELAY_SECONDS


def test_other_rows_are_rejected_and_so_is_a_check_of_nothing():
    with pytest.raises(CheckError, match="it: expected"):
        check.settle("it", Tally(2, 7), Tally(2, 8))
    with pytest.raises(CheckError, match="no partners"):
        check.settle("it", Tally(), Tally())


def test_contenders_must_agree_in_every_micro_batch_not_only_in_all():
    one, other = [Tally(1, 5, 6), Tally(2, 7, 8)], [Tally(2, 7, 8), Tally(1, 5, 6)]
    check.agree([("this", one), ("that", [*one])])
    with pytest.raises(CheckError, match="micro-batch 0: this returned"):
        check.agree([("this", one), ("that", other)])


def test_a_query_that_ran_with_other_settings_is_rejected():
    offsets = 'v1\n{"batchWatermarkMs": 0, "conf": {"format": "2", "more": "x"}}\n{"logOffset": 0}'
    check.check_conf("it", {"format": "2", "not kept": "y"}, offsets)
    with pytest.raises(CheckError, match="'format': '2'"):
        check.check_conf("it", {"format": "4"}, offsets)
    with pytest.raises(CheckError, match="it: the query ran with"):
        check.check_conf("it", {"not kept": "y"}, offsets)


def test_a_full_disk_is_reported_before_anything_is_written(tmp_path):
    with pytest.raises(SystemExit, match="--skip band"):
        Inputs(tmp_path, replace(CASES["band, band, random"], batch_rows=10**12), 1).written()
    assert list(tmp_path.iterdir()) == []
