from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ON_SPARK = Path(__file__).parent / "spark"

# No deadline, because the first example of a test compiles kernels; new examples in every run find more.
settings.register_profile(
    "adjoin", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("adjoin")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on Spark begin at once: with several processes they take longest."""
    items.sort(key=lambda item: not item.path.is_relative_to(ON_SPARK))
