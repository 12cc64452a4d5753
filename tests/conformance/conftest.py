from collections.abc import Iterator

import pytest

from tests import oracle
from tests.conformance.snapshots import Shelf


@pytest.fixture(scope="session", autouse=True)
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A place for the masters of this run."""
    Shelf.directory = tmp_path_factory.mktemp("masters")
    yield
    Shelf.clear()
    oracle.close()
