"""Compiled kernels are cached, whichever directories are writable, without touching numba's settings."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import adjoin.kernels

PROGRAM = """
import numpy as np
from numba import config
from adjoin.kernels.page_utility import credit_pages
assert not config.CACHE_DIR
utility = np.zeros(3, np.float32)
credit_pages(utility, np.array([1, 1]), 1.0)
print(utility[1], credit_pages.stats.cache_path, sum(credit_pages.stats.cache_hits.values()))
"""


def run_on_a_read_only_copy(tmp_path: Path, **environment: str) -> tuple[str, int]:
    """Where kernels are cached, and how many of them were found there."""
    package = Path(adjoin.kernels.__file__).parents[1]
    copy = tmp_path / "site"
    if not copy.exists():
        (copy / "adjoin" / "kernels").mkdir(parents=True)
        (copy / "adjoin" / "__init__.py").touch()
        for file in (package / "kernels").glob("*.py"):
            (copy / "adjoin" / "kernels" / file.name).write_bytes(file.read_bytes())
        # A file in place of the directory: not even root can write there.
        (copy / "adjoin" / "kernels" / "__pycache__").touch()
    clean = {
        key: value for key, value in os.environ.items() if not key.startswith(("NUMBA", "XDG", "PYTHON"))
    }
    environment = {**clean, "PYTHONPATH": str(copy), "TMPDIR": str(tmp_path / "tmp"), **environment}
    (tmp_path / "tmp").mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    value, place, hits = done.stdout.split()
    assert value == "2.0"
    return place, int(hits)


def test_kernels_of_a_read_only_installation_are_in_the_users_cache(tmp_path):
    home = tmp_path / "home"
    place, hits = run_on_a_read_only_copy(tmp_path, HOME=str(home))
    assert place.startswith(str(home))
    assert hits == 0
    assert run_on_a_read_only_copy(tmp_path, HOME=str(home)) == (place, 1)


def test_without_a_home_kernels_are_cached_in_a_temporary_directory(tmp_path):
    place, hits = run_on_a_read_only_copy(tmp_path, HOME="/proc/nowhere")
    assert place.startswith(str(tmp_path / "tmp" / f"adjoin-{os.getuid()}"))
    assert hits == 0
    assert run_on_a_read_only_copy(tmp_path, HOME="/proc/nowhere") == (place, 1)


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_directory_that_others_can_write_to_is_not_used(tmp_path, mode):
    own = tmp_path / "tmp" / f"adjoin-{os.getuid()}"
    own.mkdir(parents=True)
    own.chmod(mode)
    place, _ = run_on_a_read_only_copy(tmp_path, HOME="/proc/nowhere")
    assert not place.startswith(str(own) + "/")
