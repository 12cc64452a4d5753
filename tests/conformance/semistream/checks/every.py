"""All checks for joins of a stream with a master: importing this module registers them."""

from tests.conformance.semistream.checks import exact, life, memory, types, versions

__all__ = ["exact", "life", "memory", "types", "versions"]
