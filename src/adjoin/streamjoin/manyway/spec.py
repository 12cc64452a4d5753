"""What any number of inputs are joined on: conditions and columns of the results, validated once."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from adjoin.arrow.copying import plain_columns, plain_schema
from adjoin.arrow.encodings import Orders
from adjoin.errors import OptionError
from adjoin.kernels.hashing import scatter
from adjoin.kernels.types import Array
from adjoin.operators.on import chosen_columns, result_batch, result_schema
from adjoin.streamjoin.base.spec import check_input, in_key_order
from adjoin.streamjoin.manyway.graph import Edge, JoinGraph
from adjoin.streamjoin.memory.tuples import KeyIntervals


class ManyInputs:
    """The join of any number of inputs.

    Args:
        relations: The schema of every relation, by name.
        on: The conditions.
        columns: Columns of the results; all by default.
        scatters: A key that all relations share is scattered one to one, so that a range of it is a hash
            partition.

    Attributes:
        graph: Which relations are joined with which.
        names: The names of the relations.
        schemas: Their schemas.
        stored: The columns of each relation that are stored, in plain types.
        attributes: Of each relation, the edges whose keys are its join attributes: one for each attribute.
        schema: The schema of the results.
        shown: The columns of each relation that the results have.
        orders: How ordered dictionaries are ordered, by relation and column.
    """

    def __init__(
        self,
        relations: Mapping[str, pa.Schema],
        on: Sequence[str],
        columns: Sequence[str] | None = None,
        *,
        scatters: bool = False,
    ) -> None:
        self.orders = Orders()
        are_named = isinstance(relations, Mapping) and all(isinstance(name, str) for name in relations)
        if not are_named or "" in relations:
            raise OptionError(f"relations={relations!r:.200} must be the schemas of relations by name")
        for name, schema in relations.items():
            check_input(name, schema)
        self.graph = JoinGraph(relations, on)
        self.names: Sequence[str] = self.graph.names
        self.described = {"on": [edge.text for edge in self.graph.edges]}
        self.schemas: Sequence[pa.Schema] = tuple(relations.values())
        self.stored: Sequence[pa.Schema] = [plain_schema(schema) for schema in self.schemas]
        self._attribute_of: list[dict[Edge, int]] = []
        self.attributes: list[list[Edge]] = []
        for number in range(len(self.schemas)):
            self._note_attributes(number)
        self._is_scattered = scatters and self.has_one_key
        self.are_points: Sequence[Sequence[bool]] = [
            [edge.condition.are_points[edge.side(number)] for edge in edges]
            for number, edges in enumerate(self.attributes)
        ]
        self.shown = [list(schema.names) for schema in self.schemas]
        self.schema = self._all_columns()
        if columns is not None:
            self._choose(columns)
        self._sources = [(number, name) for number, names in enumerate(self.shown) for name in names]

    def __len__(self) -> int:
        return len(self.schemas)

    def _note_attributes(self, relation: int) -> None:
        """Edges with equal keys share an attribute."""
        edges: list[Edge] = []
        numbers: dict[Edge, int] = {}
        known: dict[tuple[object, ...], int] = {}
        for edge in self.graph.edges_of(relation):
            facts = edge.condition.attribute(edge.side(relation))
            if facts not in known:
                known[facts] = len(edges)
                edges.append(edge)
            numbers[edge] = known[facts]
        self.attributes.append(edges)
        self._attribute_of.append(numbers)

    def _all_columns(self) -> pa.Schema:
        fields = [
            field.with_name(f"{name}_{field.name}")
            for name, schema in zip(self.names, self.schemas, strict=True)
            for field in schema
        ]
        return result_schema(fields, "rename a relation or column")

    def _choose(self, columns: Sequence[str]) -> None:
        """Keep these columns of the results."""
        chosen = chosen_columns(columns, self.schema)
        named = iter(self.schema.names)
        self.shown = [[name for name in names if next(named) in chosen] for names in self.shown]
        self.schema = pa.schema([self.schema.field(name) for name in chosen])

    @property
    def has_one_key(self) -> bool:
        """Whether all relations are joined on one key."""
        return all(len(edges) == 1 for edges in self.attributes) and all(
            edge.condition.is_equality for edge in self.graph.edges
        )

    def attribute_of(self, relation: int, edge: Edge) -> int:
        """The number of the relation's join attribute that belongs to an edge."""
        return self._attribute_of[relation][edge]

    def key_columns(self, relation: int, attribute: int) -> tuple[str, ...]:
        """The columns of a join attribute."""
        edge = self.attributes[relation][attribute]
        return edge.condition.columns(edge.side(relation))

    def keys(self, relation: int, attribute: int, batch: pa.RecordBatch) -> tuple[Array, Array, Array | None]:
        """Lower and upper ends of rows in plain types, and which rows have a key (None: all)."""
        edge = self.attributes[relation][attribute]
        low, high, valid = edge.condition.bounds(edge.side(relation), batch)
        if self._is_scattered:
            low = high = scatter(low)
        return low, high, valid

    def keyed(self, side: int, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, KeyIntervals]:
        """The rows that have all keys, in plain types and in the order of the first one; and the keys."""
        plain = plain_columns(batch)
        attributes = range(len(self.attributes[side]))
        return in_key_order(plain, [self.keys(side, attribute, plain) for attribute in attributes])

    def result(self, columns: list[pa.Array], rows: int) -> pa.RecordBatch:
        """A batch of this many results."""
        return result_batch(columns, self.schema, rows, self.orders, self._sources.__getitem__)
