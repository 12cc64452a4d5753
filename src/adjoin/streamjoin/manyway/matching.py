"""Rows of one relation joined with tuples of all others: in which order they are probed, and the results."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin.kernels.sorting import argsort_keys
from adjoin.kernels.types import Array
from adjoin.operators.portions import portions
from adjoin.streamjoin.base.result_builder import InBatch, InSlots, Others, sizes_of
from adjoin.streamjoin.manyway.graph import Edge, JoinGraph
from adjoin.streamjoin.manyway.spec import ManyInputs
from adjoin.streamjoin.memory.row_store import places_of
from adjoin.streamjoin.memory.tuples import KeyIntervals, MemoryTuples

_PART_BYTES, _STEP_BYTES = 24, 60
"""Of a match: for each relation that has a tuple in it, and for finding the next one."""


def _match_bytes(relations: int) -> int:
    """What a match takes in all steps together."""
    return (_PART_BYTES * relations + _STEP_BYTES) * (relations - 1)


@dataclass
class _Seen:
    """Statistics of the probes along an edge."""

    pairs: float = 0.0
    matches: float = 0.0

    @property
    def selectivity(self) -> float:
        """The share of pairs of tuples that match; 0 before there were any."""
        return self.matches / self.pairs if self.pairs else 0.0


class ProbeOrder:
    """Tracks the selectivity of every edge, and chooses the relation to probe next.

    Args:
        graph: Which relations are joined with which.
    """

    def __init__(self, graph: JoinGraph) -> None:
        self._graph = graph
        self._seen = [_Seen() for _ in graph.edges]

    def next(self, probed: Collection[int]) -> tuple[Edge, int]:
        """The most selective edge to a relation that has not been probed, and its other end."""
        number = min(
            (number for number, edge in enumerate(self._graph.edges) if self._leads_on(edge, probed)),
            key=lambda number: self._seen[number].selectivity,
        )
        edge = self._graph.edges[number]
        return edge, edge.ends[0] if edge.ends[0] in probed else edge.ends[1]

    @staticmethod
    def _leads_on(edge: Edge, probed: Collection[int]) -> bool:
        return (edge.ends[0] in probed) != (edge.ends[1] in probed)

    def note(self, edge: Edge, probes: int, tuples: int, matches: int) -> None:
        """Record that `probes` rows probed `tuples` tuples, and how many matches they found.

        Earlier observations lose half their weight by the time as many rows have probed as there are tuples.
        The paper zeroes them at every flush, and then knows nothing for a while.
        """
        seen = self._seen[self._graph.edges.index(edge)]
        still = 0.5 ** (probes / max(tuples, 1))
        seen.pairs = seen.pairs * still + probes * tuples
        seen.matches = seen.matches * still + matches

    @property
    def selectivities(self) -> dict[str, float]:
        """The selectivity of every condition."""
        return {edge.text: seen.selectivity for edge, seen in zip(self._graph.edges, self._seen, strict=True)}

    def to_json(self) -> list[list[float]]:
        """The state for a snapshot."""
        return [[seen.pairs, seen.matches] for seen in self._seen]

    def restore(self, saved: Any) -> None:
        """Continue from the state that `to_json` returned."""
        self._seen = [_Seen(*each) for each in saved]


@dataclass(frozen=True)
class Match:
    """Tuples of some or of all relations that match each other.

    Attributes:
        parts: Of each relation, a tuple for every match.
        size: How many matches there are.
    """

    parts: dict[int, Others]
    size: int

    def chosen(self, at: Array) -> "Match":
        """Those at these positions."""
        return Match({relation: part.chosen(at) for relation, part in self.parts.items()}, len(at))

    def numbers(self, relation: int, name: str) -> Array:
        """A column of whole numbers of the tuples of a relation."""
        (column,) = self.parts[relation].take([name], 0, self.size)
        numbers: Array = column.to_numpy()
        return numbers

    def columns(
        self, wanted: Mapping[int, Sequence[str]], limit_bytes: int
    ) -> Iterator[list[pa.RecordBatch]]:
        """Columns of the tuples of some relations, a batch of each, `limit_bytes` at a time."""
        sizes = sum(self.parts[relation].sizes(names) for relation, names in wanted.items())
        is_little = isinstance(sizes, int) and sizes * self.size <= limit_bytes
        cuts = [(0, self.size)] if is_little else portions(np.broadcast_to(sizes, self.size), limit_bytes)
        for begin, end in cuts:
            yield [
                pa.RecordBatch.from_arrays(self.parts[relation].take(names, begin, end), names=list(names))
                for relation, names in wanted.items()
            ]


class Matching:
    """Finds the matches of rows; a row is dropped as soon as a relation has none for it.

    Args:
        spec: The join.
        inputs: The tuples of every relation.
        order: Chooses the relation to probe next.
        limit_bytes: For the matches in progress, and the same amount for their keys.
    """

    def __init__(
        self, spec: ManyInputs, inputs: Sequence[MemoryTuples], order: ProbeOrder, limit_bytes: int
    ) -> None:
        self._spec = spec
        self._inputs = inputs
        self._order = order
        self._limit_bytes = limit_bytes
        self._limit = max(1, limit_bytes // _match_bytes(len(spec)))

    def of(self, relation: int, batch: pa.RecordBatch, keys: KeyIntervals) -> Iterator[Match]:
        """The matches of rows of a relation with tuples of all others; none if one of these is empty."""
        if not all(len(tuples) for number, tuples in enumerate(self._inputs) if number != relation):
            return
        rows = np.arange(batch.num_rows, dtype=np.int32)
        match = Match({relation: InBatch(batch, sizes_of(batch), rows)}, batch.num_rows)
        yield from self._extended(match, {relation: keys})

    def _extended(self, match: Match, known: dict[int, KeyIntervals]) -> Iterator[Match]:
        if not match.size:
            return
        if len(match.parts) == len(self._spec):
            yield match
            return
        edge, bound = self._order.next(match.parts)
        new = edge.other(bound)
        low, high = self._keys(match, bound, edge, known)
        order = argsort_keys(low)
        tuples, found = self._inputs[new], 0
        index = tuples.indexes[self._spec.attribute_of(new, edge)]
        for some in index.matches(low[order], high[order], self._limit):
            others = InSlots(tuples.slots, places_of(some.place))
            chosen = match.chosen(order[some.owner])
            more = Match({**chosen.parts, new: others}, chosen.size)
            if edge.condition.verifies:
                more = more.chosen(np.flatnonzero(self._are_same(more, edge)))
            found += more.size
            yield from self._extended(more, {})
        self._order.note(edge, match.size, len(tuples), found)

    def _keys(
        self, match: Match, relation: int, edge: Edge, known: dict[int, KeyIntervals]
    ) -> tuple[Array, Array]:
        attribute = self._spec.attribute_of(relation, edge)
        if relation in known:
            return known[relation][attribute]
        return self.keys_of(match, relation, attribute)

    def keys_of(self, match: Match, relation: int, attribute: int) -> tuple[Array, Array]:
        """The keys of the tuples of a relation."""
        names = tuple(dict.fromkeys(self._spec.key_columns(relation, attribute)))
        found = [
            self._spec.keys(relation, attribute, batch)[:2]
            for (batch,) in match.columns({relation: names}, self._limit_bytes)
        ]
        if len(found) == 1:
            return found[0]
        low, high = (np.concatenate(ends) for ends in zip(*found, strict=True))
        return low, high

    def _are_same(self, match: Match, edge: Edge) -> Array:
        """Whether keys with equal hashes are equal."""
        wanted = {end: edge.condition.columns(side) for side, end in enumerate(edge.ends)}
        same = [
            edge.condition.same_keys(left.columns, right.columns)
            for left, right in match.columns(wanted, self._limit_bytes)
        ]
        return np.concatenate(same)


class ManyResultBuilder:
    """Builds result batches of limited size.

    Args:
        spec: The join.
        limit_bytes: Maximum size of a batch, unless a single row is larger.
    """

    def __init__(self, spec: ManyInputs, limit_bytes: int) -> None:
        self._spec = spec
        self._limit_bytes = limit_bytes

    def of(self, match: Match) -> Iterator[pa.RecordBatch]:
        """The results of matches with tuples of all relations."""
        shown = self._spec.shown
        sizes = sum(match.parts[number].sizes(names) for number, names in enumerate(shown) if names)
        for begin, end in portions(np.broadcast_to(sizes, match.size), self._limit_bytes):
            columns = [
                column
                for number, names in enumerate(shown)
                if names
                for column in match.parts[number].take(names, begin, end)
            ]
            yield self._spec.result(columns, end - begin)
