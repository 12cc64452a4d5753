import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# No deadline, because the first example of a test compiles kernels; random examples find more over time.
settings.register_profile(
    "adjoin", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("adjoin")


@pytest.fixture(scope="session", autouse=True)
def skip_syncing() -> Iterator[None]:
    """Syncs are simulated where they matter (tests/faults/world.py); real ones would only cost time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield
