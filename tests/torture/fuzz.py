"""Generated inputs: bytes for parsers, batches, schemas, options and changes for operators.

An input is one string of bytes that a parser is given, one batch that is pushed, one set of arguments, or
one set of changes. What comes of it is what an oracle says, or an AdjoinError.
"""

import json
import os
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin import AdjoinError, Master, OptionError
from adjoin.kernels.pages import LACKING, find_buffers
from adjoin.master.data_file import checksum_of
from adjoin.master.manifest import Manifest
from adjoin.master.version_records import QueryRecords
from adjoin.master.versions import Home
from adjoin.memory.page_columns import columns_of
from adjoin.memory.page_memory import PageFile
from tests.conformance.values import KEY_TYPES, PAYLOAD_TYPES, key_pool, random_column
from tests.oracle import Predicate, assert_same_rows, expected
from tests.torture.cases import Case, Draw, refusal
from tests.torture.damage import OPERATORS
from tests.torture.kills import QUERY
from tests.torture.model import Model
from tests.unit.master.tables import multiset, rows_of
from tests.unit.streamjoin import inputs

_PARSED_PER_CASE = 500
_OPENED_PER_CASE = 3
_PAGES_PER_CASE = 5_000
ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    7,
    1 << 31,
    1 << 63,
    1 << 64,
    10**400,
    -(10**30),
    0.0,
    -0.5,
    1e308,
    float("nan"),
    float("inf"),
    float("-inf"),
    Decimal("sNaN"),
    Decimal("1.5"),
    "",
    "x",
    "1",
    "64MB",
    "-1MB",
    "1e9",
    "nanMB",
    "\0",
    "\ud800",
    b"",
    b"x",
    (),
    (1,),
    ("id", "id"),
    [],
    ["id"],
    [None],
    [["id"]],
    {},
    {"id": "id"},
    {"id": None},
    {1: 2},
    set(),
    object(),
    int,
    np.int64(3),
    np.float64("nan"),
    np.array([1, 2]),
    pa.scalar(3),
    pa.int64(),
    pa.array([1]),
)
_ODD_JSON: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    4096,
    1 << 31,
    1 << 40,
    1 << 63,
    1 << 70,
    -(1 << 63),
    0.5,
    1e400,
    float("nan"),
    "",
    "x",
    "0",
    "../../../etc/passwd",
    "a/b",
    "\0",
    "identity",
    "int64",
    [],
    [[]],
    [0],
    [None],
    ["x"],
    {},
    {"x": 1},
    {"": {}},
)


# Parsers.


def _changed_json(draw: Draw, value: Any) -> Any:
    """A copy in which one item, at any depth, is changed, missing or duplicated."""
    if isinstance(value, dict) and value and draw.random() < 0.92:
        name = draw.choice(sorted(value))
        way = draw.random()
        if way < 0.1:
            return {key: held for key, held in value.items() if key != name}
        changed = draw.choice(list(value.values())) if way < 0.2 else _changed_json(draw, value[name])
        return {**value, name: changed}
    if isinstance(value, list) and value and draw.random() < 0.8:
        at, way = draw.randrange(len(value)), draw.random()
        if way < 0.15:
            return [*value[:at], *value[at + 1 :]]
        if way < 0.3:
            return [*value, value[at]]
        return [*value[:at], _changed_json(draw, value[at]), *value[at + 1 :]]
    if isinstance(value, str) and value and draw.random() < 0.5:
        at = draw.randrange(len(value))
        return value[:at] + draw.choice(["", "A", "=", "\0", "é"]) + value[at + draw.randrange(3) :]
    if isinstance(value, int) and not isinstance(value, bool) and draw.random() < 0.5:
        return value + draw.choice([-1, 1, 4096, -4096, 1 << 32])
    return draw.choice(_ODD_JSON)


def _changed_bytes(draw: Draw, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice([1, 1, 2, 10])):
        at = draw.randrange(len(changed)) if changed else 0
        match draw.randrange(4):
            case 0 if changed:
                changed[at] ^= 1 << draw.randrange(8)
            case 1:
                del changed[at : at + draw.choice([1, 8, 1000])]
            case 2:
                changed[at:at] = draw.randbytes(draw.choice([1, 8]))
            case _ if changed:
                changed[at] = draw.choice(b'0{}[]",:-\x00\xff9e')
    return bytes(changed)


def _resealed(body: bytes) -> bytes:
    return f"{checksum_of(body):016x}\n".encode() + body


def _hostile(draw: Draw, data: bytes, saved: Any) -> tuple[bytes, bool]:
    """Altered bytes, and whether their checksum is valid."""
    way = draw.random()
    if way < 0.3:
        return _changed_bytes(draw, data), False
    if way < 0.45:
        return _resealed(_changed_bytes(draw, data.partition(b"\n")[2])), True
    changed = saved
    for _ in range(draw.choice([1, 1, 1, 3])):
        changed = _changed_json(draw, changed)
    return _resealed(json.dumps(changed).encode()), True


class Parsers:
    """Manifests, query records and page memory headers with altered bytes."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._masters: list[tuple[Path, Model, bytes, Any]] = []
        for number, (key, has_sequence) in enumerate([("int64", False), ("string", True)]):
            path, model = work / str(number), Model.drawn(Draw("parsers", number), key, has_sequence)
            for step in (model.build(60), model.apply(10), model.evolve(), model.apply(10)):
                step.act(path)
            data = Path(Home(path).manifest_path(4)).read_bytes()
            self._masters.append((path, model, data, json.loads(data.partition(b"\n")[2])))
        QueryRecords(self._masters[0][0]).version_for(QUERY, 0)

    def case(self, draw: Draw) -> Counter[str]:
        path, model, data, saved = draw.choice(self._masters)
        manifest, directory = Home(path).manifest_path(4), Home(path).data_dir
        counts: Counter[str] = Counter()
        whole = Manifest.from_bytes(manifest, bytearray(data), directory)
        for _ in range(_PARSED_PER_CASE):
            other, is_sealed = _hostile(draw, data, saved)
            try:
                read = Manifest.from_bytes(manifest, bytearray(other), directory)
                counts["accepted"] += 1
                assert is_sealed or read == whole, "another manifest than the one that was written"
            except Exception as error:  # noqa: BLE001 (a finding, unless adjoin raised it)
                _refused(error, manifest, other)
            counts["manifests"] += 1
        for _ in range(_OPENED_PER_CASE):
            self._open(draw, path, model, _hostile(draw, data, saved)[0], data)
            counts["manifests opened"] += 1
        self._records(draw, counts)
        self._headers(draw, counts)
        return counts

    def _open(self, draw: Draw, path: Path, model: Model, other: bytes, whole: bytes) -> None:
        """A master with this manifest can be read, or raises an AdjoinError."""
        manifest = Path(Home(path).manifest_path(4))
        manifest.write_bytes(other)
        try:
            with Master.open(path) as master:
                master.verify()
                rows_of(master)
        except Exception as error:  # noqa: BLE001 (a finding, unless adjoin raised it)
            _refused(error, "", other)
        finally:
            manifest.write_bytes(whole)

    def _records(self, draw: Draw, counts: Counter[str]) -> None:
        path = self._masters[0][0]
        record = Path(QueryRecords(path).directory(QUERY)) / f"{0:020d}.json"
        data = record.read_bytes()
        for _ in range(_PARSED_PER_CASE // 5):
            other, is_sealed = _hostile(draw, data, json.loads(data.partition(b"\n")[2]))
            record.write_bytes(other)
            try:
                version = QueryRecords(path).version_for(QUERY, 0)
                assert is_sealed or version == 4, f"version {version} from other bytes"
            except Exception as error:  # noqa: BLE001
                _refused(error, record, other)
            counts["records"] += 1
        record.write_bytes(data)

    def _headers(self, draw: Draw, counts: Counter[str]) -> None:
        """The header of a page file is accepted, or the file counts as empty."""
        path = self._work / "pages"
        with PageFile(path, 1 << 20) as pages:
            pages.recall("k")
            pages.map(4096, 8192)
            pages.array("notes", 10, np.int64)[:] = 7
            pages.leave({"slots": 2})
        header = path.read_bytes()[:4096]
        for _ in range(_PARSED_PER_CASE // 10):
            other = _changed_bytes(draw, header.rstrip(b"\0"))[:4096].ljust(4096, b"\0")
            with path.open("r+b") as file:
                file.write(other)
            try:
                with PageFile(path, 1 << 20) as pages:
                    pages.recall("k")
                    pages.map(4096, 8192)
                    pages.array("notes", 10, np.int64)[:] = 7
                    pages.leave({"slots": 2})
            except Exception as error:  # noqa: BLE001
                _refused(error, path, other)
            counts["headers of page memory"] += 1


def _refused(error: BaseException, name: object, given: bytes) -> None:
    if isinstance(error, AssertionError):
        raise error
    try:
        refusal(error, name)
    except AssertionError as finding:
        raise AssertionError(f"{finding} (given {len(given)} bytes)") from error


# Pages.


def _page(batch: pa.RecordBatch) -> np.ndarray:
    message = np.frombuffer(batch.serialize(), np.uint8)
    page = np.zeros(-(-len(message) // 4096) * 4096, np.uint8)
    page[: len(message)] = message
    return page


def _last_end(page: np.ndarray, wanted: np.ndarray) -> int:
    """The end of the last needed buffer according to the page's metadata, read without any check."""
    data = page.data

    def number(at: int, code: str = "<i") -> int:
        return int(struct.unpack_from(code, data, at)[0])

    def field(table: int, at: int) -> int:
        return table + number(table - number(table) + 4 + 2 * at, "<H")

    def follow(at: int) -> int:
        return at + number(at)

    batch = follow(field(follow(8), 2))
    buffers = follow(field(batch, 2)) + 4
    places = (struct.unpack_from("<qq", data, buffers + 16 * int(ordinal)) for ordinal in wanted)
    return 8 + number(4) + max(begin + size for begin, size in places)


class Pages:
    """Altered metadata of pages with many schemas: buffers are inside the page, or it is rejected."""

    def __init__(self, work: Path) -> None:
        rng = np.random.default_rng(3)
        self._pages = []
        for number in range(12):
            names = rng.choice(sorted(PAYLOAD_TYPES), 1 + number % 5)
            columns = {f"c{at}": random_column(PAYLOAD_TYPES[name], 20, rng) for at, name in enumerate(names)}
            batch = pa.record_batch({"k": np.arange(20), **columns})
            wanted = sorted(
                ordinal for column in columns_of(batch.schema) for ordinal in column.all_buffers()
            )
            self._pages.append((_page(batch), np.array(wanted, np.int64)))

    def case(self, draw: Draw) -> Counter[str]:
        whole, wanted = draw.choice(self._pages)
        rng = np.random.default_rng(draw.getrandbits(64))
        guard, metadata = 4096, 8 + int(whole[4:8].view(np.int32)[0])
        arena = np.full(len(whole) + 2 * guard, 255, np.uint8)
        page, words = arena[guard:-guard], arena.view(np.int64)
        page[:] = whole
        offsets, rows = np.zeros((len(wanted), 3), np.int32), np.zeros(3, np.int32)
        counts = Counter({"pages": _PAGES_PER_CASE})
        edges = np.array([0, 1, 4, 8, 16, 127, 128, 255], np.uint8)
        for _ in range(_PAGES_PER_CASE):
            if draw.random() < 0.02:
                page[:metadata] = rng.integers(0, 256, metadata)
            else:
                at = rng.integers(0, metadata, draw.choice([1, 1, 2, 5]))
                page[at] = (
                    page[at] ^ (1 << rng.integers(0, 8, len(at)))
                    if draw.random() < 0.5
                    else rng.choice(edges, len(at))
                )
            length = len(whole) if draw.random() < 0.9 else int(rng.integers(0, len(whole) + 1))
            is_whole = find_buffers(arena, words, guard, length, wanted, offsets, rows, 1)
            found = offsets[:, 1]
            assert (found[found != LACKING] >= -1).all(), "a buffer before the page"
            assert (found <= length).all(), "a buffer behind the page"
            assert is_whole or (rows[1] == 0 and (found == -1).all()), "a page that is refused is noted"
            assert rows[1] >= 0
            if is_whole:
                counts["accepted"] += 1
                assert _last_end(page, wanted) <= length, "a buffer ends behind the page"
            page[:metadata] = whole[:metadata]
        assert not offsets[:, [0, 2]].any(), "other slots were written"
        assert (arena[:guard] == 255).all() and (arena[-guard:] == 255).all()  # noqa: PT018
        return counts


# Operators.


def semi_stream(work: Path, draw: Draw) -> Counter[str]:
    """Masters and streams of any schema, through any operator, compared with DuckDB."""
    counts: Counter[str] = Counter()
    rng = np.random.default_rng(draw.getrandbits(64))
    key = draw.choice(sorted(KEY_TYPES))
    pool = key_pool(KEY_TYPES[key], draw.choice([5, 40]), seed=draw.getrandbits(32))
    names = [f"k{at}" for at in range(len(pool))]

    def table(rows: int, null_share: float, more: str) -> pa.Table:
        index = rng.integers(0, len(pool[0]), rows)
        taken = pa.array(index, mask=rng.random(rows) < null_share)
        kinds = rng.choice(sorted(PAYLOAD_TYPES), draw.randrange(4))
        payload = {
            f"{more}{at}": random_column(PAYLOAD_TYPES[kind], rows, rng) for at, kind in enumerate(kinds)
        }
        return pa.table(
            {**{name: column.take(taken) for name, column in zip(names, pool, strict=True)}, **payload}
        )

    held = table(draw.choice([0, 1, 30, 300]), 0, "m")
    stream = table(draw.choice([1, 60, 250]), 0.1, draw.choice(["s", "m"]))
    stream = stream.append_column("rid", pa.array(np.arange(len(stream))))
    options: dict[str, Any] = {
        "page_bytes": draw.choice([4096, 8192]),
        "fill": draw.choice([0.3, 0.8, 1.0]),
        "filter_bits": draw.choice([0, 8]),
    }
    try:
        built = Master.build(held, key=names, path=work / "m", **options)
    except OptionError:
        assert options["fill"] < 0.8, "columns of a few bytes fit a page"
        counts["refused: fill"] += 1
        built = Master.build(held, key=names, path=work / "m", **{**options, "fill": 1.0})
    with built as master:
        for _ in range(3):
            kind, how = draw.choice(OPERATORS), draw.choice(["inner", "left", "semi", "anti"])
            on: Any = names if len(names) > 1 else draw.choice([names, names[0]])
            memory = int(kind.least_memory(master)) + draw.choice([0, 4096, 1 << 16, 1 << 22])
            counts["option sets"] += 1
            try:
                with kind(master, on=on, how=how, memory=memory) as operator:
                    schema = operator.schema_of(stream.schema)
                    batches = _cut(draw, stream)
                    found = pa.Table.from_batches(list(operator.run(batches)), schema=schema)
            except AdjoinError as error:
                counts[f"refused: {type(error).__name__}"] += 1
                continue
            counts["batches"] += len(batches)
            assert_same_rows(found, expected(stream, held, Predicate(on), how))
    return counts


def _cut(draw: Draw, table: pa.Table) -> list[pa.RecordBatch]:
    """Batches of any length, empty ones among them."""
    table = table.combine_chunks()
    at = sorted(draw.randrange(len(table) + 1) for _ in range(draw.choice([0, 3, 30])))
    places = [0, *at, len(table)]
    pieces = [table.slice(begin, end - begin) for begin, end in pairwise(places)]
    empty = pa.RecordBatch.from_pylist([], schema=table.schema)
    return [batch for piece in pieces for batch in (piece.to_batches() or [empty])]


def streams(work: Path, draw: Draw) -> Counter[str]:
    """Two streams through any join, compared with a dictionary."""
    name = draw.choice(sorted(inputs.JOINS))
    band = name in {"diner", "pmj"} and draw.random() < 0.5
    keys = draw.choice([3, 40, 500, 100_000])
    sides = {
        "left": inputs.Input(inputs.LEFT, draw.getrandbits(32), keys),
        "right": inputs.Input(inputs.RIGHT, draw.getrandbits(32), keys),
    }
    found: list[pa.RecordBatch] = []
    batches = 0
    with inputs.small(
        name, is_tight=name != "shj" and draw.random() < 0.7, **({"within": 2} if band else {})
    ) as join:
        for _ in range(draw.choice([4, 15])):
            side = draw.choice(sorted(sides))
            rows = draw.choice([0, 1, 7, 120] if keys > 3 else [0, 1, 7, 30])
            found.extend(join.push(side, sides[side].draw(rows)))
            batches += 1
            if draw.random() < 0.2:
                found.extend(join.idle(draw.choice([0, 0.01, 5])))
        found.extend(join.finish())
        join.check_invariants()
    reach = 2 if band else 0
    by_key: dict[int, list[int]] = {}
    for row in sides["right"].table.to_pylist():
        if row["k"] is not None:
            by_key.setdefault(row["k"], []).append(row["r"])
    wanted = sorted(
        row["l"] << 32 | r
        for row in sides["left"].table.to_pylist()
        if row["k"] is not None
        for k in range(row["k"] - reach, row["k"] + reach + 1)
        for r in by_key.get(k, ())
    )
    assert inputs.pairs_of(found).to_pylist() == wanted, f"{name}: wrong pairs"
    return Counter({"batches": batches, "option sets": 1})


class Changes:
    """Valid and invalid change sets on a living master, compared with a dictionary."""

    def __init__(self, work: Path) -> None:
        self._work = work

    def case(self, draw: Draw) -> Counter[str]:
        path = self._work / f"{draw.seed_}-{draw.number}"
        model = Model.drawn(draw)
        counts: Counter[str] = Counter()
        model.build(draw.choice([1, 40, 200])).act(path)
        for _ in range(8):
            counts["change sets"] += 1
            if draw.random() < 0.5:
                self._wrong(draw, path, model)
                counts["refused"] += 1
                continue
            for step in model.steps(1):
                step.act(path)
            with Master.open(path) as master:
                assert master.revision == model.revision
                assert multiset(rows_of(master)) == model.held(model.revision), "wrong rows"
        return counts

    @staticmethod
    def _wrong(draw: Draw, path: Path, model: Model) -> None:
        """Invalid changes raise an AdjoinError and change nothing."""
        row = {**model.row(1), "_op": "upsert"}
        table = pa.Table.from_pylist([row], model.schema.append(pa.field("_op", pa.string())))
        options: dict[str, Any] = {}
        match draw.randrange(8):
            case 0:
                table = table.drop_columns([draw.choice(table.column_names)])
            case 1:
                table = table.set_column(
                    table.column_names.index("_op"),
                    "_op",
                    pa.array([draw.choice(["", "UPSERT", None])], pa.string()),
                )
            case 2:
                table = table.set_column(0, "id", pa.nulls(1, table.schema.field(0).type))
            case 3:
                table = table.append_column("more", pa.array([1]))
            case 4:
                table = table.set_column(1, table.column_names[1], pa.array([[{"a": 1}]]))
            case 5:
                options["memory"] = draw.choice([0, -1, "x", None, 1.5])
            case 6:
                options["sequence"] = draw.choice(["none", 3, ["id"], "_op"])
            case _:
                options["txn"] = draw.choice([3, ("a",), ("a", -1), ("a", "b"), b"x", ("a", True)])
        try:
            with Master.open(path) as master:
                master.apply(table, **options).close()
        except Exception as error:  # noqa: BLE001
            refusal(error)
        else:
            raise AssertionError(f"accepted: {table.to_pylist()} {options}")
        with Master.open(path) as master:
            assert master.revision == model.revision, "something has changed"


class Options:
    """Invalid arguments to every function that takes arguments."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._master = Master.build(
            pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]}), key="id", path=work / "m"
        )
        schema = pa.schema([("id", pa.int64()), ("l", pa.int64())])
        other = pa.schema([("id", pa.int64()), ("r", pa.int64())])
        self._calls: list[tuple[Callable[..., Any], dict[str, Any]]] = [
            *(
                (
                    kind,
                    {
                        "master": self._master,
                        "on": "id",
                        "how": "left",
                        "memory": "1MB",
                        "columns": None,
                        "suffix": "_m",
                        "within": None,
                        "between": None,
                    },
                )
                for kind in set(OPERATORS)
            ),
            *(
                (kind, {"left": schema, "right": other, "on": "id", "memory": "8MB", "block_bytes": 4096})
                for kind in inputs.JOINS.values()
            ),
            (
                self._built,
                {
                    "source": pa.table({"id": [1]}),
                    "key": "id",
                    "page_bytes": 4096,
                    "fill": 0.8,
                    "filter_bits": 0,
                    "memory": "1MB",
                    "null_keys": "error",
                    "path": "x",
                },
            ),
            (Master.open, {"path": self._master.path, "version": None}),
            (self._master.at, {"version": 1}),
            (self._master.vacuum, {"keep": 1, "keep_for": None, "records": ()}),
            (self._master.evolve, {"add": None, "drop": (), "widen": None, "rename": None}),
            (
                self._master.apply,
                {
                    "changes": None,
                    "txn": "t",
                    "order_by": (),
                    "sequence": None,
                    "tombstones": "1 day",
                    "marks": None,
                    "memory": "1MB",
                    "evolve": False,
                },
            ),
        ]

    def _built(self, path: Any, **options: Any) -> Master:
        if isinstance(path, str) and path:
            path = self._work / f"built {os.urandom(8).hex()}"
        return Master.build(path=path, **options)

    def case(self, draw: Draw) -> Counter[str]:
        counts: Counter[str] = Counter()
        for _ in range(100):
            call, usual = draw.choice(self._calls)
            names = draw.sample(sorted(usual), min(len(usual), draw.choice([1, 1, 1, 2])))
            given = {**usual, **{name: draw.choice(ODD) for name in names}}
            if call == self._master.evolve:
                given = {name: value for name, value in given.items() if name in names}
            counts["option sets"] += 1
            try:
                made = call(**given)
            except Exception as error:  # noqa: BLE001
                counts["refused"] += 1
                try:
                    refusal(error)
                except AssertionError as finding:
                    odd = {name: given[name] for name in names}
                    raise AssertionError(f"{finding} from {call.__qualname__}({odd!r})") from error
            else:
                with suppress(AttributeError):
                    made.close()
        assert multiset(rows_of(self._master)) == ["(1, 'a')", "(2, 'b')", "(3, 'c')"]
        return counts


@contextmanager
def _of(kind: type, work: Path) -> Iterator[Case]:
    yield kind(work).case


def parsers(work: Path) -> Any:
    return _of(Parsers, work)


def pages(work: Path) -> Any:
    return _of(Pages, work)


def changes(work: Path) -> Any:
    return _of(Changes, work)


def options(work: Path) -> Any:
    return _of(Options, work)
