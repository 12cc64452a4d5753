"""All operators, each with the checks of its family; importing this module registers the checks."""

from tests.conformance.registry import SEMI_STREAM, STREAM_JOIN, Family
from tests.conformance.semistream.checks import every as semi_stream_checks
from tests.conformance.semistream.subjects import OPERATORS
from tests.conformance.streamjoin.checks import every as stream_join_checks
from tests.conformance.streamjoin.subjects import JOINS
from tests.conformance.subjects import Subject

FAMILIES: list[tuple[Family, list[Subject]]] = [(SEMI_STREAM, [*OPERATORS]), (STREAM_JOIN, [*JOINS])]

__all__ = ["FAMILIES", "SEMI_STREAM", "STREAM_JOIN", "semi_stream_checks", "stream_join_checks"]
