"""The README's examples run, and its links lead somewhere."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

import adjoin
from adjoin import Master

ROOT = Path(__file__).parents[2]
SECTIONS = re.split(r"^## ", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
PROGRAMS = {
    section.splitlines()[0]: programs
    for section in SECTIONS
    if (programs := re.findall(r"```python\n(.*?)```", section, re.DOTALL))
}


def run(section: str) -> dict[str, Any]:
    """Run the programs of a section one after the other, as a reader pastes them."""
    names: dict[str, Any] = {}
    for program in PROGRAMS[section]:
        exec(program, names)
    return names


@pytest.fixture
def settings(spark):
    """What the programs set is unset again: the session is that of all tests."""
    yield
    for name in ("providerClass", "rocksdb.boundedMemoryUsage"):
        spark.conf.unset(f"spark.sql.streaming.stateStore.{name}")


def test_the_programs_on_spark_run_as_pasted(spark, monkeypatch, settings):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    names = run("On Spark")
    matched = spark.read.parquet(f"{names['home']}/matched")
    assert matched.columns == ["order_id", "ordered_at", "paid_at"]
    assert matched.count() == matched.filter("order_id % 2 = 0").distinct().count() == 500
    facts = spark.read.parquet(f"{names['home']}/facts")
    assert facts.columns == ["sale", "product_id", "name"]
    assert facts.count() == 50_000
    assert facts.filter("(name IS NULL) != (product_id >= 1000000)").count() == 0
    with Master.open(f"{names['home']}/master") as master:
        assert master.schema.names == ["product_id", "title", "color"]
    changed = adjoin.enrich(spark.range(2).withColumnRenamed("id", "product_id"), master, on="product_id")
    assert sorted(row["title"] for row in changed.collect()) == ["ink", "pen"]


def test_the_programs_without_spark_run_as_pasted(capsys):
    names = run("Without Spark")
    assert names["products"].version == 11
    printed = capsys.readouterr().out
    assert "'item': ['pen', 'pad']" in printed or "'item': ['pad', 'pen']" in printed
    assert "'cards_name': ['Ada', 'Bob']" in printed or "'cards_name': ['Bob', 'Ada']" in printed


def test_every_program_is_run():
    assert list(PROGRAMS) == ["On Spark", "Without Spark"]


@pytest.mark.parametrize(
    "page",
    ["README.md", "CONTRIBUTING.md", "docs/how_it_works.md", "docs/observability.md", "docs/decisions.md"],
)
def test_links_lead_to_files(page):
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text())
    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []
