"""A master that is replaced, or whose columns change, under a DataFrame or a running stream."""

import shutil

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.errors import StreamingQueryException

from adjoin import Master, MasterReplacedError, SchemaError, enrich, etl
from adjoin.spark import apply as apply_module
from tests.unit.master.tables import rows_of


def _build(path, columns, rows=50):
    values = {
        "id": pa.array(range(rows), pa.int64()),
        "name": pa.array([f"name {at}" for at in range(rows)]),
        "city": pa.array([f"city {at}" for at in range(rows)]),
        "size": pa.array(range(rows), pa.int32()),
    }
    return Master.build(pa.table({name: values[name] for name in columns}), key="id", path=path)


def _raised(error):
    text = str(error.value)
    return text.rsplit("adjoin.errors.", 1)[-1].splitlines()[0]


class Stream:
    """Files of ids, read one at a time by a query that writes to memory."""

    def __init__(self, spark, path, master, name, **options):
        self._spark, self._source, self._name, self._number = spark, path / "in", name, 0
        self._source.mkdir()
        stream = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(self._source))
        joined = enrich(stream, master, on="id", how="left", memory="16MB", **options)
        self.columns = joined.columns
        self.query = (
            joined.writeStream.format("memory")
            .queryName(name)
            .option("checkpointLocation", str(path / "checkpoint"))
            .start()
        )

    def add(self, *ids):
        self._number += 1
        path = self._source / f"{self._number}.parquet"
        hidden = self._source / f"_{self._number}"
        pa.parquet.write_table(pa.table({"id": pa.array(ids, pa.int64())}), hidden)
        hidden.rename(path)
        self.query.processAllAvailable()

    def rows(self):
        return [row.asDict() for row in self._spark.table(self._name).orderBy("id").collect()]


@pytest.fixture
def stream(spark, tmp_path, request):
    made: list[Stream] = []

    def make(master, **options):
        made.append(
            Stream(spark, tmp_path, master, f"replaced_{request.node.name[:20]}_{len(made)}", **options)
        )
        return made[-1]

    yield make
    for one in made:
        one.query.stop()


def test_a_batch_dataframe_rejects_another_master_at_its_path(spark, tmp_path):
    path = tmp_path / "m"
    _build(path, ["id", "name", "city"])
    joined = enrich(spark.range(10), path, on="id", memory="16MB")
    shutil.rmtree(path)
    other = _build(path, ["id", "city", "name"])
    with pytest.raises(Exception, match="MasterReplacedError") as error:
        joined.collect()
    assert other.id in _raised(error)
    assert "['id', 'city', 'name']" in _raised(error)


def test_a_running_stream_rejects_another_master_at_its_path(stream, tmp_path):
    path = tmp_path / "m"
    _build(path, ["id", "name", "city"])
    running = stream(path)
    running.add(1, 2)
    shutil.rmtree(path)
    _build(path, ["id", "name", "city"])
    with pytest.raises(StreamingQueryException, match="MasterReplacedError"):
        running.add(3)
    assert [row["id"] for row in running.rows()] == [1, 2]


def test_a_running_stream_keeps_its_columns(stream, tmp_path):
    path = tmp_path / "m"
    master = _build(path, ["id", "name", "city", "size"])
    running = stream(master)
    running.add(1)
    master = master.evolve(
        add={"color": "string"}, rename={"name": "city", "city": "name"}, widen={"size": "bigint"}
    )
    changed = {
        "_op": ["upsert"],
        "id": [2],
        "city": ["new name"],
        "name": ["new city"],
        "size": [7],
        "color": ["red"],
    }
    master = master.apply(pa.table(changed))
    running.add(2, 3)
    assert running.rows() == [
        {"id": 1, "name": "name 1", "city": "city 1", "size": 1},
        {"id": 2, "name": "new name", "city": "new city", "size": 7},
        {"id": 3, "name": "name 3", "city": "city 3", "size": 3},
    ]
    master.apply(pa.table({**changed, "size": [2**40]}))
    with pytest.raises(StreamingQueryException, match="'size' was widened to int64"):
        running.add(2)


def test_a_stream_that_needs_a_dropped_column_ends_and_others_continue(stream, tmp_path):
    path = tmp_path / "m"
    master = _build(path, ["id", "name", "city"])
    running = stream(master, columns=["city"])
    running.add(1)
    master = master.evolve(drop="name")
    running.add(2)
    assert running.rows()[1] == {"id": 2, "city": "city 2"}
    master.evolve(drop="city", add={"city": "bigint"})
    with pytest.raises(StreamingQueryException, match=r"version 3 of .* has no column 'city'"):
        running.add(3)


@pytest.mark.parametrize("rows_per_task", [100, None], ids=["on executors", "by the driver"])
def test_a_dataframe_of_changes_adds_new_columns(spark, tmp_path, monkeypatch, rows_per_task):
    if rows_per_task:
        monkeypatch.setattr(apply_module, "_ROWS_PER_TASK", rows_per_task)
        monkeypatch.setattr(apply_module, "_FEW_ROWS", 0)
    master = _build(tmp_path / "m", ["id", "name"], rows=1000)
    changes = spark.range(500, 1500).selectExpr(
        "id", "'upsert' AS _op", "concat('new ', id) AS name", "array(id) AS ids", "current_date() AS day"
    )
    with pytest.raises(SchemaError, match="ids"):
        master.apply(changes)
    newer = master.apply(changes, evolve=True)
    assert newer.schema.names == ["id", "name", "ids", "day"]
    assert newer.schema.field("day").type == pa.date32()
    rows = {row["id"]: row["ids"] for row in rows_of(newer).to_pylist()}
    assert rows == {at: [at] if at >= 500 else None for at in range(1500)}
    newer.verify()


def test_a_change_stream_adds_new_columns_and_rejects_another_master(spark, tmp_path):
    path = tmp_path / "m"
    _build(path, ["id", "name"], rows=10)
    body = etl.apply_changes(path, "feed", evolve=True)
    body(
        spark.createDataFrame(
            [("upsert", 3, "three", "red")], "_op string, id long, name string, color string"
        ),
        0,
    )
    assert rows_of(Master.open(path)).to_pylist()[3] == {"id": 3, "name": "three", "color": "red"}
    shutil.rmtree(path)
    _build(path, ["id", "name"], rows=10)
    with pytest.raises(MasterReplacedError):
        body(spark.createDataFrame([("delete", 3)], "_op string, id long"), 1)
