"""All operators, each with the checks of its family; importing this module registers the checks."""

from tests.conformance.registry import SEMI_STREAM, STREAM_JOIN, Family
from tests.conformance.semistream.checks import exact, life, memory, types, versions
from tests.conformance.semistream.subjects import OPERATORS
from tests.conformance.subjects import Subject

FAMILIES: list[tuple[Family, list[Subject]]] = [(SEMI_STREAM, [*OPERATORS])]

__all__ = ["FAMILIES", "SEMI_STREAM", "STREAM_JOIN", "exact", "life", "memory", "types", "versions"]
