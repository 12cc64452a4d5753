"""Faults leave reference cycles; objects of other tests are kept out of their collection."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def quick_collections() -> Iterator[None]:
    gc.freeze()
    yield
    gc.unfreeze()
