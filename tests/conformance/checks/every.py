"""All checks: importing this module registers them."""

from tests.conformance.checks import exact, life, memory, types, versions
from tests.conformance.checks.registry import CASES, HOWS, Case, cases_of
from tests.conformance.checks.versions import assert_versions_explain

__all__ = [
    "CASES",
    "HOWS",
    "Case",
    "assert_versions_explain",
    "cases_of",
    "exact",
    "life",
    "memory",
    "types",
    "versions",
]
