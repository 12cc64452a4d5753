"""The README's examples run, and its links point to existing files."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adjoin import Master

ROOT = Path(__file__).parents[2]
PATH = re.compile(r'"(products\.parquet|sales\.parquet|sales|changes|checkpoint|upkeep|facts|masters/\w+)"')


def test_the_examples_run_in_order(spark, tmp_path):
    known = pa.table({"product_id": [7, 8], "name": ["ink", "pad"], "price": [2.0, 3.0]})
    sold = pa.table({"sale": [1, 2, 3], "product_id": [7, 8, 9]})
    changes = known.append_column("_op", pa.array(["delete", "upsert"])).append_column(
        "changed", pa.array([0, 1], pa.timestamp("us", "UTC"))
    )
    pq.write_table(known, tmp_path / "products.parquet")
    pq.write_table(sold, tmp_path / "sales.parquet")
    for name, rows in {"sales": sold, "changes": changes}.items():
        (tmp_path / name).mkdir()
        pq.write_table(rows, tmp_path / name / "1.parquet")
    written: list[pa.RecordBatch] = []
    names: dict[str, Any] = {"write": written.extend, "spark": spark}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL):
        exec(PATH.sub(rf'"{tmp_path}/\1"', block), names)  # Spark was started in another directory
        for query in spark.streams.active:
            query.processAllAvailable()
            query.stop()
    assert sum(batch.num_rows for batch in written) == 2
    facts = spark.read.parquet(str(tmp_path / "facts")).toArrow().to_pylist()
    assert sorted((row["sale"], row["name"]) for row in facts) == [(1, "ink"), (2, "pad"), (3, None)]
    assert Master.open(tmp_path / "masters/shop").rows == 1


@pytest.mark.parametrize(
    "page",
    ["README.md", "CONTRIBUTING.md", "docs/how_it_works.md", "docs/observability.md", "docs/decisions.md"],
)
def test_links_lead_to_files(page):
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text())
    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []
