"""Faults leave objects in cycles; what other tests hold is not searched for them."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def quick_collections() -> Iterator[None]:
    gc.freeze()
    yield
    gc.unfreeze()
