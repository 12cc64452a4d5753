"""The README's examples run, and its links lead somewhere."""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[1]


def test_the_examples_run_one_after_the_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pq.write_table(
        pa.table({"product_id": [7, 8], "name": ["ink", "pad"], "price": [2.0, 3.0]}), "products.parquet"
    )
    pq.write_table(pa.table({"sale": [1, 2, 3], "product_id": [7, 8, 9]}), "sales.parquet")
    written: list[pa.RecordBatch] = []
    names: dict[str, object] = {"write": written.extend}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL):
        exec(block, names)
    assert sum(batch.num_rows for batch in written) == 2


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", "docs/how_it_works.md", "docs/decisions.md"]
)
def test_links_lead_to_files(page):
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text())
    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []
