"""A master in plain Python: its expected contents at every revision, and the steps between them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from adjoin.master.master import Master
from tests.torture.cases import Draw
from tests.unit.master.tables import build_master, multiset

Row = dict[str, Any]
KEY_TYPES = {"int64": pa.int64(), "int32": pa.int32(), "string": pa.string(), "double": pa.float64()}
_WIDER = {pa.int16(): pa.int64(), pa.int32(): pa.int64(), pa.float32(): pa.float64()}
_NEW_TYPES = (pa.int32(), pa.float32(), pa.string(), pa.int16())


@dataclass(frozen=True)
class Step:
    """An operation on the master.

    Attributes:
        what: "build", "apply", "evolve", "compact" or "vacuum".
        base: The revision before it; 0 if there is no master.
        act: Does it, to the master at a path.
        changes: The changes of an "apply".
        options: Arguments of the method.
    """

    what: str
    base: int
    act: Callable[[Path], None]
    changes: pa.Table | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def counts(self) -> bool:
        """Whether it creates a new revision."""
        return self.what in {"build", "apply", "evolve"}


@dataclass
class Model:
    """A master of a few hundred rows, drawn at random.

    Attributes:
        key: The kind of its key.
        has_sequence: Whether all its changes have a sequence.
        columns: Types of its columns; the key's is "id".
        rows: What it holds now, by the number of the key.
        tables: What it held at each revision.
        keeps: How many versions `apply` may keep.
    """

    draw: Draw
    key: str
    has_sequence: bool
    columns: dict[str, pa.DataType]
    rows: dict[int, list[Row]] = field(default_factory=dict)
    latest: dict[int, int] = field(default_factory=dict)
    tables: dict[int, pa.Table] = field(default_factory=dict)
    revision: int = 0
    counter: int = 0
    keeps: tuple[int | None, ...] = (None, 1, 3, 10)

    @classmethod
    def drawn(cls, draw: Draw, key: str | None = None, has_sequence: bool | None = None) -> "Model":
        key = key or draw.choice(sorted(KEY_TYPES))
        has_sequence = draw.random() < 0.4 if has_sequence is None else has_sequence
        columns = {"id": KEY_TYPES[key], "text": pa.string(), "n": pa.int32(), "x": pa.float32()}
        return cls(draw, key, has_sequence, columns)

    def key_of(self, number: int) -> Any:
        return {"string": f"k{number}", "double": number / 4}.get(self.key, number)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(list(self.columns.items()))

    def table(self) -> pa.Table:
        """Its current contents."""
        return pa.Table.from_pylist([row for rows in self.rows.values() for row in rows], self.schema)

    def row(self, number: int) -> Row:
        self.counter += 1
        row: Row = {"id": self.key_of(number)}
        for name, type_ in self.columns.items():
            if name != "id":
                row[name] = self._value(type_)
        return row

    def _value(self, type_: pa.DataType) -> Any:
        if self.draw.random() < 0.1:
            return None
        if pa.types.is_string(type_):
            return f"{self.counter} " + "x" * self.draw.choice([0, 3, 40, 200])
        return (
            self.draw.randrange(-30_000, 30_000)
            if pa.types.is_integer(type_)
            else self.draw.randrange(999) / 8
        )

    # Steps. Each changes the model at once, and returns what does the same to the master.

    def build(self, keys: int) -> Step:
        for number in self.draw.sample(range(2 * keys), keys):
            copies = 2 if self.draw.random() < 0.1 else 1
            self.rows[number] = [self.row(number) for _ in range(copies)]
        table = self.table()
        options = {
            "page_bytes": 4096,
            "filter_bits": self.draw.choice([0, 8]),
            "memory_bytes": self.draw.choice([1 << 14, 1 << 24]),
            "file_bytes": self.draw.choice([20_000, 1 << 30]),
            "fill": self.draw.choice([0.5, 0.8, 1.0]),
        }
        self._revised()
        return Step("build", 0, lambda path: build_master(table, "id", path, **options).close())

    def apply(self, most: int = 60) -> Step:
        base = self.revision
        changes = self._sequenced(most) if self.has_sequence else self._plain(most)
        options: dict[str, Any] = {
            "txn": ("steps", base),
            "memory": self.draw.choice([1 << 14, 1 << 22]),
            "keep": self.draw.choice(self.keeps),
        }
        if self.has_sequence:
            options |= {"sequence": "at", "tombstones": None}
        self._revised()

        def act(path: Path) -> None:
            with Master.open(path) as master:
                master.apply(changes, **options).close()

        return Step("apply", base, act, changes, options)

    def _plain(self, most: int) -> pa.Table:
        changes: list[Row] = []
        span = max(self.rows, default=0) + 20
        for number in [span, *(self.draw.randrange(span) for _ in range(self.draw.randrange(most)))]:
            operation = self.draw.choices(["upsert", "delete", "insert"], [5, 3, 2])[0]
            operation = "upsert" if number == span else operation
            row = self.row(number)
            kept = self.rows.get(number, []) if operation == "insert" else []
            self.rows[number] = kept if operation == "delete" else [*kept, row]
            changes.append({**row, "_op": operation})
        return pa.Table.from_pylist(changes, self.schema.append(pa.field("_op", pa.string())))

    def _sequenced(self, most: int) -> pa.Table:
        """Every key once; many changes are late."""
        changes: list[Row] = []
        span = max(self.rows, default=0) + 20
        numbers = {span, *(self.draw.randrange(span) for _ in range(self.draw.randrange(most)))}
        for number in sorted(numbers):
            row, at = self.row(number), self.draw.randrange(1000)
            is_delete = number != span and self.draw.random() < 0.3
            if at >= self.latest.get(number, -1):
                self.latest[number] = at
                self.rows[number] = [] if is_delete else [row]
            changes.append({**row, "_op": "delete" if is_delete else "upsert", "at": at})
        self.draw.shuffle(changes)
        return pa.Table.from_pylist(
            changes, self.schema.append(pa.field("_op", pa.string())).append(pa.field("at", pa.int64()))
        )

    def evolve(self, *, only_add: bool = False) -> Step:
        base = self.revision
        self.counter += 1
        others = [name for name in self.columns if name != "id" and not only_add]
        changes: dict[str, Any] = {"add": {f"c{self.counter}": self.draw.choice(_NEW_TYPES)}}
        if len(others) > 3:
            changes["drop"] = [self.draw.choice(others)]
            others.remove(changes["drop"][0])
        if others and self.draw.random() < 0.5:
            changes["rename"] = {self.draw.choice(others): f"r{self.counter}"}
            others.remove(next(iter(changes["rename"])))
        wider = [name for name in others if self.columns[name] in _WIDER]
        if wider:
            name = self.draw.choice(wider)
            changes["widen"] = {name: _WIDER[self.columns[name]]}
        self._evolved(**changes)
        self._revised()

        def act(path: Path) -> None:
            with Master.open(path) as master:
                master.evolve(**changes).close()

        return Step("evolve", base, act, options=changes)

    def _evolved(self, add: Any, drop: Any = (), rename: Any = (), widen: Any = ()) -> None:
        names = dict(rename)
        types = {**self.columns, **dict(widen)}
        self.columns = {names.get(name, name): type_ for name, type_ in types.items() if name not in drop}
        self.columns |= add
        for rows in self.rows.values():
            for at, row in enumerate(rows):
                kept = {names.get(name, name): value for name, value in row.items() if name not in drop}
                rows[at] = {**kept, **dict.fromkeys(add)}

    def compact(self) -> Step:
        def act(path: Path) -> None:
            with Master.open(path) as master:
                master.compact().close()

        return Step("compact", self.revision, act)

    def vacuum(self, keep: int) -> Step:
        def act(path: Path) -> None:
            with Master.open(path) as master:
                master.vacuum(keep=keep)

        return Step("vacuum", self.revision, act, options={"keep": keep})

    def steps(self, count: int) -> list[Step]:
        """Random steps of all kinds."""
        plan = []
        for _ in range(count):
            match self.draw.choices(["apply", "evolve", "compact", "vacuum"], [5, 2, 2, 2.5])[0]:
                case "apply":
                    plan.append(self.apply())
                case "evolve":
                    plan.append(self.evolve())
                case "compact":
                    plan.append(self.compact())
                case "vacuum":
                    plan.append(self.vacuum(self.draw.choice([1, 2, 5])))
        return plan

    def _revised(self) -> None:
        self.revision += 1
        self.tables[self.revision] = self.table()

    def held(self, revision: int) -> list[str]:
        """The rows at a revision, for comparison."""
        return multiset(self.tables[revision])

    def joined(self, revision: int, stream: pa.Table) -> list[str]:
        """The expected left join on "id" for these rows of a stream with the columns "id" and "sale"."""
        return self.joined_with(self.tables[revision], stream)

    @staticmethod
    def joined_with(table: pa.Table, stream: pa.Table) -> list[str]:
        by_key: dict[Any, list[Row]] = {}
        for row in table.to_pylist():
            by_key.setdefault(row.pop("id"), []).append(row)
        absent = dict.fromkeys(name for name in table.column_names if name != "id")
        rows = [
            (*sale.values(), *met.values())
            for sale in stream.to_pylist()
            for met in (by_key.get(sale["id"]) or [absent])
        ]
        return sorted(map(repr, rows))

    def sales(self, count: int, first: int = 0) -> pa.Table:
        """Rows of a stream: keys that exist, have existed, and never existed; nulls."""
        numbers = [self.draw.randrange(-5, 700) for _ in range(count)]
        ids = [None if number % 17 == 0 else self.key_of(number) for number in numbers]
        return pa.table({"id": pa.array(ids, KEY_TYPES[self.key]), "sale": range(first, first + count)})
