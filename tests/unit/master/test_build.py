import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from adjoin.arrow.row_sizes import message_overhead
from adjoin.errors import MasterExistsError, MasterNotFoundError, NullKeyError, OptionError, SchemaError
from adjoin.master.master import Master
from adjoin.master.page import Cuts, PageCutter
from tests.unit.master.tables import build_master, files_below, multiset, products, rows_of, stored_rows


def _sorted(table: pa.Table) -> pa.Table:
    return table.take(pa.array(np.argsort(table["id"].to_numpy(), kind="stable")))


@pytest.mark.parametrize("memory", [1 << 14, 1 << 17, "64MB"], ids=str)
@pytest.mark.parametrize("space", [None, 40], ids=["unique", "duplicates"])
def test_rows_are_sorted_stably_in_any_amount_of_memory(memory: Any, space: Any, tmp_path: Path) -> None:
    table = products(6000, space=space)
    master = Master.build(table, "id", tmp_path / "m", page_bytes=4096, memory=memory)
    master.verify()
    assert stored_rows(master).equals(_sorted(table))
    assert os.listdir(tmp_path / "m" / "tmp") == []


def test_the_pages_do_not_depend_on_the_memory(tmp_path: Path) -> None:
    table = products(6000, space=500)
    small = Master.build(table, "id", tmp_path / "a", memory=1 << 14)
    large = Master.build(table, "id", tmp_path / "b")
    assert small.index.rows.tolist() == large.index.rows.tolist()


def test_pages_are_filled_to_the_fill_level_and_not_beyond(tmp_path: Path) -> None:
    table = products(20_000)
    for fill in (0.3, 0.8, 1.0):
        master = Master.build(table, "id", tmp_path / str(fill), page_bytes=8192, fill=fill)
        assert master.index.blocks.max() <= 2
        reader = pa.ipc.open_file(master.files[0].path)
        used = [reader.get_batch(page).nbytes for page in range(5, reader.num_record_batches - 1)]
        assert max(used) <= fill * 8192
        assert min(used) >= fill * 8192 * 0.8 - 500
        assert master.bytes == int(master.index.blocks.sum()) * 4096


def test_a_row_longer_than_a_page_gets_a_longer_page(tmp_path: Path) -> None:
    texts = ["x" * (30_000 if number == 5 else 10) for number in range(20)]
    master = Master.build(pa.table({"id": range(20), "t": texts}), "id", tmp_path / "m", page_bytes=4096)
    master.verify()
    long = int(np.argmax(master.index.blocks))
    assert master.index.blocks[long] == 8
    assert master.index.rows[long] == 1
    assert rows_of(master)["t"].to_pylist() == texts


@pytest.mark.parametrize("columns", [100, 200])
@pytest.mark.parametrize("page_bytes", [4096, 8192, 1 << 20])
def test_pages_grow_with_the_number_of_columns(columns: int, page_bytes: int, tmp_path: Path) -> None:
    table = pa.table({f"c{at}": np.arange(500) * at for at in range(columns)})
    master = Master.build(table, "c1", tmp_path / "m", page_bytes=page_bytes, fill=1.0)
    overhead_bytes = message_overhead(master.stored_schema)
    assert master.page_bytes == max(page_bytes, -(-4 * overhead_bytes // 4096) * 4096)
    assert (master.index.blocks * 4096 <= master.page_bytes).all()
    newer = master.apply(table.slice(0, 9).append_column("_op", pa.array(["insert"] * 9)))
    newer.verify()
    assert newer.page_bytes == master.page_bytes
    assert newer.rows == 509


def test_rows_pending_for_a_long_page_are_not_cut_at_every_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    cut = PageCutter.cut

    def counted(cutter: PageCutter, batch: pa.RecordBatch, *, more: bool) -> Cuts:
        calls.append(batch.num_rows)
        return cut(cutter, batch, more=more)

    monkeypatch.setattr(PageCutter, "cut", counted)
    table = products(3000)
    master = Master.build(table, "id", tmp_path / "m", page_bytes=1 << 20, memory=1 << 16)
    assert calls == [3000]
    assert rows_of(master).equals(_sorted(table))


def test_sparse_nested_columns_do_not_bloat_pages(tmp_path: Path) -> None:
    lists = [["y"] * 20 if number >= 2000 else [] for number in range(4000)]
    table = pa.table({"id": range(4000), "l": pa.array(lists, pa.list_(pa.string()))})
    for memory in (1 << 17, "64MB"):
        master = Master.build(table, "id", tmp_path / str(memory), page_bytes=4096, memory=memory)
        assert master.index.blocks.max() == 1
        assert rows_of(master).equals(table)


@pytest.mark.parametrize("key", ["id", "name", ["name", "id"], "price"], ids=str)
def test_an_empty_master(key: Any, tmp_path: Path) -> None:
    master = Master.build(products(0), key, tmp_path / "m", filter_bits=8)
    master.verify()
    assert (master.rows, master.pages, master.bytes, master.files) == (0, 0, 0, ())
    assert len(master.index) == 0
    assert master.filter is not None
    assert not master.filter.contains(np.arange(10)).any()


def _sources(table: pa.Table, path: Path) -> dict[str, Any]:
    pq.write_table(table, path / "one.parquet", row_group_size=700)
    (path / "many").mkdir()
    for part in range(3):
        pq.write_table(table.slice(part * 1000, 1000), path / "many" / f"{part}.parquet")
    return {
        "table": table,
        "batch": pa.concat_batches(table.to_batches()),
        "reader": pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=77)),
        "dataset": ds.dataset(path / "many"),
        "file": path / "one.parquet",
        "directory": str(path / "many"),
    }


@pytest.mark.parametrize("name", ["table", "batch", "reader", "dataset", "file", "directory"])
def test_every_kind_of_source_gives_the_same_rows(name: str, tmp_path: Path) -> None:
    table = products(3000)
    source = _sources(table, tmp_path)[name]
    master = Master.build(source, "id", tmp_path / "m", memory=1 << 16)
    assert rows_of(master).equals(_sorted(table))


def test_a_filtered_dataset_gives_only_the_rows_of_its_filter(tmp_path: Path) -> None:
    source = _sources(products(3000), tmp_path)["dataset"].filter(ds.field("id") < 100)
    assert Master.build(source, "id", tmp_path / "m").rows == 100


def test_partition_columns_of_parquet_are_kept(tmp_path: Path) -> None:
    table = products(300).append_column("shop", pa.array(["north", "south", "west"] * 100))
    pq.write_to_dataset(table, tmp_path / "p", partition_cols=["shop"])
    master = Master.build(tmp_path / "p", "id", tmp_path / "m")
    assert multiset(rows_of(master).select(table.schema.names)) == multiset(table)


def test_unsupported_sources_are_reported(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no parquet")
    for source, match in [
        ([1], "list"),
        (tmp_path / "none", "does not exist"),
        (tmp_path / "text", "not Parquet"),
    ]:
        with pytest.raises(OptionError, match=match):
            Master.build(source, "id", tmp_path / "m")


def test_null_keys_are_counted_or_dropped(tmp_path: Path) -> None:
    table = pa.table({"a": [1, None, 3, None], "b": ["x", "y", None, "z"], "c": range(4)})
    with pytest.raises(NullKeyError, match="3 of 4 rows"):
        Master.build(table, ["a", "b"], tmp_path / "m")
    assert files_below(tmp_path / "m") == [str(tmp_path / "m" / "writers.lock")]
    master = Master.build(table, ["a", "b"], tmp_path / "m", null_keys="drop")
    assert rows_of(master)["c"].to_pylist() == [0]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"page_bytes": 1000}, "page_bytes=1000"),
        ({"page_bytes": 0}, "page_bytes=0"),
        ({"page_bytes": 8192.0}, "page_bytes=8192.0"),
        ({"page_bytes": "8KB"}, "page_bytes='8KB'"),
        ({"page_bytes": 1 << 40}, "at most"),
        ({"fill": 0}, "fill=0"),
        ({"fill": "full"}, "fill='full'"),
        ({"fill": 0.05}, "is too low: the metadata of .* give fill=0.8"),
        ({"fill": 1.5}, "fill=1.5"),
        ({"filter_bits": -1}, "filter_bits=-1"),
        ({"filter_bits": 8.5}, "filter_bits=8.5"),
        ({"memory": "lots"}, "memory='lots'"),
        ({"null_keys": "keep"}, "null_keys='keep'"),
        ({"key": []}, "key="),
        ({"key": None}, "key=None"),
        ({"key": ["id", "id"]}, "key="),
    ],
    ids=str,
)
def test_invalid_options_are_refused(options: dict[str, Any], match: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=match):
        Master.build(products(5), options.pop("key", "id"), tmp_path / "m", **options)


def test_a_missing_key_column_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="nope"):
        Master.build(products(5), "nope", tmp_path / "m")


def test_columns_of_the_same_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="more than once"):
        Master.build(pa.table([[1], [2]], names=["a", "a"]), "a", tmp_path / "m")


def test_a_path_holds_one_master(tmp_path: Path) -> None:
    Master.build(products(5), "id", tmp_path / "m").close()
    with pytest.raises(MasterExistsError, match="already"):
        Master.build(products(5), "id", tmp_path / "m")
    with pytest.raises(MasterNotFoundError, match="no master"):
        Master.open(tmp_path / "other")


def test_a_new_data_file_is_started_when_one_is_full(tmp_path: Path) -> None:
    table = products(5000)
    master = build_master(table, "id", tmp_path / "m", file_bytes=100_000, memory_bytes=1 << 18)
    assert len(master.files) > 2
    assert set(master.index.file.tolist()) == set(range(len(master.files)))
    master.verify()
    assert stored_rows(master).equals(_sorted(table))


def test_a_data_file_is_also_an_arrow_stream(tmp_path: Path) -> None:
    table = products(500)
    master = Master.build(table, "id", tmp_path / "m")
    data = Path(master.files[0].path).read_bytes()
    assert pa.ipc.open_stream(data[8:]).read_all().equals(_sorted(table))


def test_the_filter_has_every_key_and_few_false_positives(tmp_path: Path) -> None:
    table = products(5000, space=3000)
    master = Master.build(table, "id", tmp_path / "m", filter_bits=10, memory=1 << 16)
    key_filter = master.filter
    assert key_filter is not None
    assert key_filter.capacity == len(set(table["id"].to_pylist()))
    assert key_filter.contains(table["id"].to_numpy()).all()
    assert key_filter.contains(np.arange(1 << 20, 1 << 21)).mean() < 0.03


_CHILD = """
import resource, sys
import numpy as np, pyarrow as pa
from adjoin.master.master import Master
from adjoin.memory.heap import return_freed_memory

return_freed_memory()

def rows(count):
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    def batches():
        draw = np.random.default_rng(0)
        for _ in range(0, count, 20_000):
            offsets = np.arange(0, 2_000_001, 100, dtype=np.int32)
            letters = draw.integers(97, 123, 2_000_000, dtype=np.uint8)
            text = pa.StringArray.from_buffers(20_000, pa.py_buffer(offsets), pa.py_buffer(letters))
            yield pa.record_batch([pa.array(draw.integers(0, 1 << 40, 20_000)), text], schema=schema)
    return pa.RecordBatchReader.from_batches(schema, batches())

peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
Master.build(rows(60_000), "id", sys.argv[1] + "/warm", memory="1MB")
before = peak()
Master.build(rows(2_000_000), "id", sys.argv[1] + "/m", memory="32MB")
print((peak() - before) // 1024)
"""


def test_resident_memory_of_a_build_follows_the_budget(tmp_path: Path) -> None:
    """200 MB of rows in 32 MB: the process may grow by the budget, plus an allowance for the allocator."""
    child = subprocess.run(
        [sys.executable, "-c", _CHILD, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env=_environment(),
    )
    assert int(child.stdout) < 32 + 40


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
