"""All checks: importing this module registers them."""

from tests.conformance.checks import exact, life, memory, types, versions
from tests.conformance.checks.registry import CASES, Case, cases_of

__all__ = ["CASES", "Case", "cases_of", "exact", "life", "memory", "types", "versions"]
