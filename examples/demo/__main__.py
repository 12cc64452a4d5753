"""Run the demo: `make demo`."""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from rich.console import Console

import adjoin
from adjoin.java import ensure_java
from examples.demo.comparison import compare
from examples.demo.pipeline import follow_changes, load_sales
from examples.demo.screen import Screen, summary
from examples.demo.shop import Shop, products


def start_spark(directory: Path) -> SparkSession:
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPARK_LOCAL_DIRS"] = str(directory / "spark")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("adjoin demo")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def run(console: Console, directory: Path, options: argparse.Namespace) -> None:
    console.print("Starting Spark ...")
    spark = start_spark(directory)
    screen = Screen(console)
    spark.streams.addListener(screen)
    master, parquet = str(directory / "products"), str(directory / "products.parquet")
    console.print(f"Building a master of {options.products:,} products with Spark ...")
    products(spark, options.products).write.parquet(parquet)
    began = time.perf_counter()
    built = adjoin.Master.build(spark.read.parquet(parquet), key="product_id", path=master)
    console.print(f"... {built.bytes / 2**20:,.0f} MB in {time.perf_counter() - began:.0f} s")
    shop = Shop(directory / "shop", options.products, options.sources, options.seed)
    facts = directory / "facts"
    queries = [
        load_sales(spark, shop.sales, master, facts, options.memory),
        follow_changes(spark, shop.changes, master),
    ]
    console.print(
        "sales per batch | age of the oldest | answered without a read | memory | version of the products"
    )
    shop.open()
    try:
        time.sleep(options.seconds)
    finally:
        shop.close()
        for query in queries:
            query.processAllAvailable()
            query.stop()
    newest = adjoin.Master.open(master)
    comparison = compare(spark, shop.sales, newest, parquet, options.memory, directory)
    console.print(summary(screen.seen, check(spark, facts, shop), newest.version, comparison))
    spark.stop()


def check(spark: SparkSession, facts: Path, shop: Shop) -> dict[str, int]:
    """Check that every sale was written once, with a key."""
    table = spark.read.parquet(str(facts))
    found = table.agg(
        F.count("*").alias("rows"),
        F.count_distinct("sale_id").alias("sales"),
        F.count("product_key").alias("keyed"),
        F.count_distinct(F.when(F.col("price").isNull(), F.col("product_key"))).alias("new_keys"),
    ).first()
    assert found is not None
    if not shop.sold == found["rows"] == found["sales"] == found["keyed"]:
        raise SystemExit(f"{shop.sold} sales were made, but the facts contain {found.asDict()}")
    return {**found.asDict(), "sold": shop.sold}


def main() -> None:
    arguments = argparse.ArgumentParser(prog="demo", description="Run adjoin's main job, end to end.")
    arguments.add_argument("--products", type=int, default=2_000_000, help="products in the master")
    arguments.add_argument("--seconds", type=float, default=30, help="how long the shop sells")
    arguments.add_argument("--sources", type=int, default=14, help="2**SOURCES sales every half second")
    arguments.add_argument("--memory", default="64MB", help="budget of the join")
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="adjoin-demo-") as directory:
        run(Console(), Path(directory), options)


if __name__ == "__main__":
    main()
