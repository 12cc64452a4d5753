"""Which relation a row asks first: the one of which the fewest tuples match."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from adjoin.streamjoin.manyway.graph import Edge, JoinGraph


@dataclass
class _Seen:
    """What probes along an edge have found."""

    pairs: float = 0.0
    matches: float = 0.0

    @property
    def selectivity(self) -> float:
        """The share of pairs of tuples that match; 0 before there were any."""
        return self.matches / self.pairs if self.pairs else 0.0


class ProbeOrder:
    """Keeps the selectivity of every edge, and says where to go from the relations that have been asked.

    Args:
        graph: Which relations are joined with which.
    """

    def __init__(self, graph: JoinGraph) -> None:
        self._graph = graph
        self._seen = [_Seen() for _ in graph.edges]

    def next(self, asked: Collection[int]) -> tuple[Edge, int]:
        """The most selective edge that leads on, and its end that has been asked."""
        number = min(
            (number for number, edge in enumerate(self._graph.edges) if self._leads_on(edge, asked)),
            key=lambda number: self._seen[number].selectivity,
        )
        edge = self._graph.edges[number]
        return edge, edge.ends[0] if edge.ends[0] in asked else edge.ends[1]

    @staticmethod
    def _leads_on(edge: Edge, asked: Collection[int]) -> bool:
        return (edge.ends[0] in asked) != (edge.ends[1] in asked)

    def note(self, edge: Edge, probes: int, tuples: int, matches: int) -> None:
        """So many rows were compared with so many tuples, and found so many matches.

        What was seen before counts half as much once as many rows have come as there are tuples. The paper
        begins anew after every flush, and knows nothing for a while.
        """
        seen = self._seen[self._graph.edges.index(edge)]
        still = 0.5 ** (probes / max(tuples, 1))
        seen.pairs = seen.pairs * still + probes * tuples
        seen.matches = seen.matches * still + matches

    @property
    def selectivities(self) -> dict[str, float]:
        """Of every condition."""
        return {edge.text: seen.selectivity for edge, seen in zip(self._graph.edges, self._seen, strict=True)}

    def to_json(self) -> list[list[float]]:
        """All there is to know."""
        return [[seen.pairs, seen.matches] for seen in self._seen]

    def restore(self, saved: Any) -> None:
        """Go on from what `to_json` said."""
        self._seen = [_Seen(*each) for each in saved]
