import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# No deadline, because the first example of a test compiles kernels; new examples in every run find more.
settings.register_profile(
    "adjoin", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("adjoin")


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """Syncing is counted where it matters (tests/faults/world.py); doing it would only cost time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield
