"""adjoin without Spark: joins in process work, and what needs Spark says how to install it."""

import subprocess
import sys

import pytest

WITHOUT_SPARK = """
import importlib.abc, sys

class Hide(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "pyspark":
            raise ModuleNotFoundError("hidden", name="pyspark")

sys.meta_path.insert(0, Hide())
import adjoin
adjoin.SSIJ, adjoin.Master
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["enrich", "etl", "EnrichListener"])
def test_what_needs_spark_says_how_to_install_it(name):
    ended = run(f"{WITHOUT_SPARK}\nadjoin.{name}")
    assert ended.stderr.strip().endswith(f"ImportError: adjoin.{name} needs Spark: install adjoin[spark]")


def test_joins_in_process_need_no_spark():
    ended = run(WITHOUT_SPARK)
    assert ended.returncode == 0, ended.stderr
