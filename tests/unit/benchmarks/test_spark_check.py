from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.engine import workload
from benchmarks.spark import check
from benchmarks.spark.contenders.catalogue import contender_class
from benchmarks.spark.contenders.contender import MASTER_COLUMNS
from benchmarks.spark.contenders.identity import widen
from benchmarks.spark.contenders.stores import ask_duckdb, ask_lmdb
from benchmarks.spark.datasets import Sales, master_of, sales_of

ROWS = 1_000


def data(folder: Path) -> tuple[Path, Path]:
    return sales_of(folder, Sales(ROWS, 100, 3, "random", 1)), master_of(folder, "parquet", ROWS)


def joined(sales: Path) -> pa.Table:
    table = pq.read_table(sales)
    found = workload.rows_of(table["key"].to_numpy())
    for name in MASTER_COLUMNS:
        table = table.append_column(name, found[name])
    return table


def written(folder: Path, table: pa.Table) -> check.Tally:
    folder.mkdir()
    pq.write_table(table, folder / "0.parquet")
    return check.of_files(folder)


def test_the_rows_of_a_join_are_accepted_in_any_order(tmp_path):
    sales, master = data(tmp_path)
    answer = joined(sales)
    shuffled = answer.take(pa.array(range(answer.num_rows - 1, -1, -1)))
    check.settle("it", check.of_join(sales, master), written(tmp_path / "answer", shuffled))


@pytest.mark.parametrize("column", ["key", "sale", "amount", *MASTER_COLUMNS])
def test_a_value_in_the_wrong_row_is_found_in_every_column(tmp_path, column):
    sales, master = data(tmp_path)
    answer = joined(sales)
    place = answer.column_names.index(column)
    turned = answer[column].take(pa.array([*range(1, answer.num_rows), 0]))
    wrong = answer.set_column(place, column, turned)
    with pytest.raises(check.CheckError, match="it: expected"):
        check.settle("it", check.of_join(sales, master), written(tmp_path / "answer", wrong))


def test_one_duplicated_and_one_missing_row_are_found(tmp_path):
    sales, master = data(tmp_path)
    answer = joined(sales)
    wrong = answer.take(pa.array([0, 0, *range(2, answer.num_rows)]))
    with pytest.raises(check.CheckError):
        check.settle("it", check.of_join(sales, master), written(tmp_path / "answer", wrong))


def test_stores_answer_as_the_oracle_does(tmp_path):
    sales, master = data(tmp_path)
    expected = check.of_join(sales, master)
    batches = pq.read_table(sales).to_batches(max_chunksize=70)
    for ask, store in ((ask_duckdb, "duckdb"), (ask_lmdb, "lmdb")):
        answer = pa.Table.from_batches(ask(iter(batches), path=str(master_of(tmp_path, store, ROWS))))
        check.settle(store, expected, written(tmp_path / f"{store}-answer", answer))
        assert list(ask(iter([]), path="nowhere")) == []


def test_an_identity_is_as_wide_as_a_join(tmp_path):
    sales, _ = data(tmp_path)
    answer = pa.Table.from_batches(widen(iter(pq.read_table(sales).to_batches())))
    check.settle("identity", check.of_identity(sales), written(tmp_path / "answer", answer))
    assert answer.nbytes == pytest.approx(joined(sales).nbytes, rel=0.05)


def test_a_plan_with_a_missing_or_a_forbidden_word_is_rejected():
    merge = contender_class("spark sort-merge")
    check.check_plan(merge, "SortMergeJoin [key], [key], Inner")
    with pytest.raises(check.CheckError, match="SortMergeJoin"):
        check.check_plan(merge, "ShuffledHashJoin [key], [key], Inner")
    with pytest.raises(check.CheckError, match="BroadcastHashJoin"):
        check.check_plan(merge, "BroadcastHashJoin SortMergeJoin")


def test_a_batch_with_a_missing_row_is_rejected():
    check.check_rows("it", 10, [10, 10])
    with pytest.raises(check.CheckError, match="batch 1 returned 9"):
        check.check_rows("it", 10, [10, 9])
