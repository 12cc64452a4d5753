"""All checks for joins of streams: importing this module registers them."""

from tests.conformance.streamjoin.checks import exact, life, memory, snapshots, types

__all__ = ["exact", "life", "memory", "snapshots", "types"]
