"""The join graph: a tree of relations, parsed from conditions in the syntax of SQL."""

import contextlib
import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

import pyarrow as pa

from adjoin.arrow.copying import no_rows, plain_columns
from adjoin.errors import OptionError, SchemaError
from adjoin.keys.predicate import Distance
from adjoin.streamjoin.base.spec import LEFT, RIGHT, Condition

_NAME = r'(\w+|"[^"]+")'
_COLUMN = rf"{_NAME}\s*\.\s*{_NAME}"
_DISTANCE = r"(\d+(?:\.\d+)?|interval\s+'\s*\d+(?:\.\d+)?\s*\w+\s*')"
_EQUAL = re.compile(rf"{_COLUMN}\s*=\s*{_COLUMN}")
_NEAR = re.compile(rf"abs\s*\(\s*{_COLUMN}\s*-\s*{_COLUMN}\s*\)\s*<=\s*{_DISTANCE}", re.IGNORECASE)
_BETWEEN = re.compile(rf"{_COLUMN}\s+between\s+{_COLUMN}\s+and\s+{_COLUMN}", re.IGNORECASE)
_INTERVAL = re.compile(r"interval\s+'\s*(\d+(?:\.\d+)?)\s*(\w+?)s?\s*'", re.IGNORECASE)
_UNITS = ("microsecond", "millisecond", "second", "minute", "hour", "day", "week")
_FORMS = "r1.a = r2.b, abs(r1.a - r2.b) <= 5, or r2.c between r1.a and r1.b"


@dataclass(frozen=True)
class Edge:
    """A condition between two relations.

    Attributes:
        ends: Their numbers: the one with intervals of keys, and the one with single keys.
        condition: When rows of the two match.
        text: The condition as a string.
    """

    ends: tuple[int, int]
    condition: Condition
    text: str

    def side(self, relation: int) -> int:
        """Whether the relation is on the left or the right of the condition."""
        return LEFT if relation == self.ends[LEFT] else RIGHT

    def other(self, relation: int) -> int:
        """The relation at the other end."""
        return self.ends[1 - self.side(relation)]


@dataclass(frozen=True)
class _Written:
    """A parsed condition."""

    text: str
    pairs: Sequence[tuple[str, str]]
    within: Distance | None = None
    between: tuple[str, str] | None = None

    @property
    def is_equality(self) -> bool:
        return self.within is None and self.between is None

    @property
    def swapped(self) -> "_Written":
        return replace(self, pairs=[(right, left) for left, right in self.pairs])


class JoinGraph:
    """A tree of relations with the conditions between them.

    Args:
        relations: The schema of every relation, by name.
        on: The conditions. Several equalities of the same two relations are one key of several columns.

    Attributes:
        names: The names of the relations.
        edges: The edges.
    """

    def __init__(self, relations: Mapping[str, pa.Schema], on: Sequence[str]) -> None:
        self.names = tuple(relations)
        self._schemas = tuple(relations.values())
        if len(self.names) < 2:
            raise OptionError(f"relations={list(self.names)!r:.200}: give the schemas of two or more")
        is_list = isinstance(on, Sequence) and not isinstance(on, str)
        if not is_list or not all(isinstance(text, str) for text in on):
            raise OptionError(f"on={on!r} must be a list of conditions such as {_FORMS}")
        self.edges: list[Edge] = []
        self._read(on)
        self._check_tree()

    def edges_of(self, relation: int) -> list[Edge]:
        """The edges of this relation."""
        return [edge for edge in self.edges if relation in edge.ends]

    def path(self, root: int, weights: Sequence[int]) -> list[tuple[int, Edge]]:
        """All other relations, each with the edge to an earlier one; heavier branches come last."""
        return self._branch(root, None, weights)

    def _branch(self, relation: int, come_by: Edge | None, weights: Sequence[int]) -> list[tuple[int, Edge]]:
        branches = [
            [(edge.other(relation), edge), *self._branch(edge.other(relation), edge, weights)]
            for edge in self.edges_of(relation)
            if edge is not come_by
        ]
        branches.sort(key=lambda steps: sum(weights[number] for number, _ in steps))
        return [step for steps in branches for step in steps]

    def _read(self, on: Sequence[str]) -> None:
        """Add edges in the order in which their relations are first mentioned together."""
        found: dict[tuple[int, int], _Written] = {}
        for text in map(str.strip, on):
            ends, written = self._parsed(text)
            if ends[::-1] in found:
                ends, written = ends[::-1], written.swapped
            before = found.get(ends)
            if before is not None:
                if not (before.is_equality and written.is_equality):
                    raise OptionError(
                        f"{text!r}: these relations already have a condition; only equalities can be combined"
                    )
                written = replace(before, pairs=sorted({*before.pairs, *written.pairs}))
            found[ends] = written
        for ends, written in found.items():
            self.edges.append(self._edge(ends, written))

    def _parsed(self, text: str) -> tuple[tuple[int, int], "_Written"]:
        if matched := _EQUAL.fullmatch(text):
            ends, left, right = self._ends(text, matched.groups())
            return ends, _Written(text, [(left, right)])
        if matched := _NEAR.fullmatch(text):
            ends, left, right = self._ends(text, matched.groups()[:4])
            return ends, _Written(text, [(left, right)], within=_distance(matched.group(5)))
        if matched := _BETWEEN.fullmatch(text):
            return self._between(text, matched.groups())
        raise OptionError(f"the condition {text!r} cannot be read; write {_FORMS}")

    def _text(self, ends: tuple[int, int], written: "_Written") -> str:
        """The condition as a string; an equality has all its columns."""
        if not written.is_equality:
            return written.text
        left, right = (self.names[end] for end in ends)
        return " and ".join(f"{left}.{mine} = {right}.{theirs}" for mine, theirs in written.pairs)

    def _between(self, text: str, parts: Sequence[str]) -> tuple[tuple[int, int], "_Written"]:
        point, least, greatest = parts[:2], parts[2:4], parts[4:]
        ends, left, right = self._ends(text, [*least, *point])
        _, other, _ = self._ends(text, [*greatest, *point])
        if least[0] != greatest[0]:
            raise OptionError(f"both bounds of {text!r} must be columns of the same relation")
        return ends, _Written(text, [(left, right)], between=(left, other))

    def _edge(self, ends: tuple[int, int], written: "_Written") -> Edge:
        """The validated condition; if it is symmetric, the key type may be that of either side."""
        try:
            return self._checked(ends, written)
        except (SchemaError, OptionError) as error:
            if written.between is None:
                with contextlib.suppress(SchemaError, OptionError):
                    return self._checked(ends[::-1], written.swapped)
            raise type(error)(f"in the condition {self._text(ends, written)!r}: {error}") from error

    def _checked(self, ends: tuple[int, int], written: "_Written") -> Edge:
        condition = Condition(self._schemas[ends[RIGHT]], written.pairs, written.within, written.between)
        for side, end in enumerate(ends):
            condition.bounds(side, plain_columns(no_rows(self._schemas[end])))
        return Edge(ends, condition, self._text(ends, written))

    def _ends(self, text: str, parts: Sequence[str]) -> tuple[tuple[int, int], str, str]:
        """The two relations and columns of r1.a, r2.b."""
        numbers, columns = [], []
        for name, column in zip(*(map(_unquoted, parts[first::2]) for first in (0, 1)), strict=True):
            if name not in self.names:
                raise OptionError(f"{text!r} names {name!r}, which is none of {', '.join(self.names)}")
            schema = self._schemas[self.names.index(name)]
            if column not in schema.names:
                raise SchemaError(f"{text!r}: {name} has no column {column!r}; it has {schema.names}")
            numbers.append(self.names.index(name))
            columns.append(column)
        if numbers[0] == numbers[1]:
            raise OptionError(
                f"{text!r} joins {parts[0]} with itself; give the relation twice, with two names"
            )
        return (numbers[0], numbers[1]), columns[0], columns[1]

    def _check_tree(self) -> None:
        group = list(range(len(self.names)))
        for edge in self.edges:
            first, second = (group[end] for end in edge.ends)
            if first == second:
                around = ", ".join(
                    name for name, each in zip(self.names, group, strict=True) if each == first
                )
                raise OptionError(
                    f"the conditions between {around} form a cycle; drop one and apply it as a filter"
                )
            group = [first if each == second else each for each in group]
        apart = [name for name, each in zip(self.names, group, strict=True) if each != group[0]]
        if apart:
            raise OptionError(
                f"no condition connects {self.names[0]} with {', '.join(apart)}; add one, or the result is a "
                "cross product"
            )


def _unquoted(name: str) -> str:
    return name.strip('"')


def _distance(text: str) -> Distance:
    matched = _INTERVAL.fullmatch(text)
    if matched is None:
        return int(text) if text.isdigit() else Decimal(text)
    unit = matched.group(2).lower()
    if unit not in _UNITS:
        raise OptionError(f"{text!r} has the unit {unit!r}, which is none of {', '.join(_UNITS)}")
    return datetime.timedelta(**{f"{unit}s": float(matched.group(1))})
