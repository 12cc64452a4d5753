"""What is to be joined with what, checked once at the door."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from adjoin import arguments
from adjoin.arrow.copying import batch_of, plain_columns, take_rows
from adjoin.arrow.encodings import Orders, declared_type, declared_values
from adjoin.errors import OptionError, SchemaError
from adjoin.kernels.hashing import scatter
from adjoin.kernels.sorting import argsort_keys
from adjoin.kernels.types import Array
from adjoin.streamjoin.base.spec import check_columns
from adjoin.streamjoin.manyway.graph import Edge, JoinGraph
from adjoin.streamjoin.memory.tuples import Keys


class ManyInputs:
    """A checked description of the join of any number of inputs.

    Args:
        relations: The schema of every relation, by name.
        on: The conditions.
        columns: Columns of the results; all by default.
        scatters: A key that all relations share is scattered, so that ranges of it are hash partitions.

    Attributes:
        graph: Which relations are joined with which.
        schemas: The schemas of the relations.
        attributes: Of each relation, the edges whose keys are its join attributes: one for each attribute.
        schema: The schema of the results.
        shown: Of each relation, the columns that are put out.
        orders: What ordered dictionaries are ordered by; their columns by relation and name.
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
            check_columns(name, schema)
        self.graph = JoinGraph(relations, on)
        self.schemas = tuple(relations.values())
        self._attribute_of: list[dict[Edge, int]] = []
        self.attributes: list[list[Edge]] = []
        for number in range(len(self.schemas)):
            self._note_attributes(number)
        self._is_scattered = scatters and self.has_one_key
        self.shown = [list(schema.names) for schema in self.schemas]
        self.schema = self._output_schema()
        if columns is not None:
            self._keep_only(columns)

    def __len__(self) -> int:
        return len(self.schemas)

    def _note_attributes(self, relation: int) -> None:
        """Edges whose keys are the same share an attribute."""
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

    def _output_schema(self) -> pa.Schema:
        fields = [
            pa.field(f"{name}_{field.name}", declared_type(field.type), field.nullable)
            for name, schema in zip(self.graph.names, self.schemas, strict=True)
            for field in schema
        ]
        names = [field.name for field in fields]
        repeated = [name for name in names if names.count(name) > 1]
        if repeated:
            raise SchemaError(
                f"two output columns would be named {repeated[0]!r}; rename a relation or column"
            )
        return pa.schema(fields)

    def _keep_only(self, columns: Sequence[str]) -> None:
        if any(name not in self.schema.names for name in arguments.names("columns", columns)):
            raise OptionError(f"columns={columns!r} must be a list of some of {self.schema.names}")
        for number, name in enumerate(self.graph.names):
            self.shown[number] = [column for column in self.shown[number] if f"{name}_{column}" in columns]
        self.schema = pa.schema([field for field in self.schema if field.name in columns])

    @property
    def are_points(self) -> list[list[bool]]:
        """For each join attribute of each relation, whether its intervals are single keys."""
        return [
            [edge.condition.are_points[edge.side(number)] for edge in edges]
            for number, edges in enumerate(self.attributes)
        ]

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
        """Lower and upper ends of rows in plain types, and which have any (None: all)."""
        edge = self.attributes[relation][attribute]
        low, high, valid = edge.condition.bounds(edge.side(relation), batch)
        if self._is_scattered:
            low = high = scatter(low)
        return low, high, valid

    def keyed(self, relation: int, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Keys]:
        """Rows that have all their keys, in the order of the first attribute; and their keys."""
        plain = plain_columns(batch)
        found = [self.keys(relation, number, plain) for number in range(len(self.attributes[relation]))]
        valid = np.ones(plain.num_rows, bool)
        for _, _, some in found:
            if some is not None:
                valid &= some
        rows = np.flatnonzero(valid)
        order = rows[argsort_keys(found[0][0][rows])]
        keys = []
        for low, high, _ in found:
            taken = low[order]
            keys.append((taken, taken if high is low else high[order]))
        return take_rows(plain, order), keys

    def result(self, columns: list[pa.Array], rows: int) -> pa.RecordBatch:
        """A batch of so many results."""
        sources = [(number, name) for number, names in enumerate(self.shown) for name in names]
        arrays = [
            declared_values(column, field.type, self.orders, source)
            for column, field, source in zip(columns, self.schema, sources, strict=True)
        ]
        return batch_of(arrays, self.schema, rows)
