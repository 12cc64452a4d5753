from collections.abc import Iterator

import pytest

# Asserts of modules that are not tests say what they compared only if this comes before their import.
pytest.register_assert_rewrite(
    "tests.conformance.subjects",
    "tests.conformance.semistream.checks",
    "tests.conformance.semistream.subjects",
    "tests.conformance.streamjoin.checks",
    "tests.conformance.streamjoin.subjects",
    "tests.oracle",
)

from tests import oracle  # noqa: E402
from tests.conformance.semistream.snapshots import Shelf  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A place for the masters of this run."""
    Shelf.directory = tmp_path_factory.mktemp("masters")
    yield
    Shelf.clear()
    oracle.close()
