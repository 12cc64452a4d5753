"""Damages files of masters and of page memory, at rest and while an operator has them open.

Whatever happens, rows are right, or an error names the file. When the damage is undone, all is as before.
"""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from adjoin import (
    SSIJ,
    CMeshJoin,
    FrontStage,
    HybridJoin,
    IndexNestedLoopJoin,
    Master,
    MeshJoin,
    RMeshJoin,
    XHybridJoin,
)
from adjoin.master.verify import load_index
from adjoin.master.version_records import QueryRecords, register
from adjoin.master.versions import Home
from adjoin.memory.arena import BLOCK_BYTES
from adjoin.memory.page_memory import PageFile
from tests.torture.cases import Case, Draw, refusal, remove
from tests.torture.kills import QUERY
from tests.torture.model import Model, Step
from tests.unit.master.tables import multiset, rows_of
from tests.unit.streamjoin import inputs

OPERATORS: tuple[Any, ...] = (
    SSIJ,
    SSIJ,
    HybridJoin,
    XHybridJoin,
    MeshJoin,
    RMeshJoin,
    IndexNestedLoopJoin,
    CMeshJoin,
    FrontStage(SSIJ),
)
_ON_PAGE_FILES: tuple[Any, ...] = (SSIJ, FrontStage(SSIJ))
_ROOM_BYTES = 48 << 10


@dataclass
class Template:
    """A master with several versions, layouts and records, and possible next steps."""

    path: Path
    model: Model
    newest: int
    recorded: dict[int, int] = field(default_factory=dict)
    live: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    following: dict[str, tuple[Model, Step]] = field(default_factory=dict)

    @classmethod
    def made(cls, path: Path, draw: Draw, key: str, has_sequence: bool) -> "Template":
        model = Model.drawn(draw, key, has_sequence)
        model.keeps = (None,)
        for step in (
            model.build(300),
            model.apply(),
            model.apply(),
            model.evolve(),
            model.apply(),
            model.apply(),
        ):
            step.act(path)
        made = cls(path, model, 0)
        for number in range(3):
            made.recorded[number] = QueryRecords(path).version_for(QUERY, number)
            model.apply().act(path)
        register(Home(path), path.parent)
        made.newest = Home(path).newest()
        made._find_live_pages()
        for what in ("apply", "evolve", "compact"):
            later = deepcopy(model)
            made.following[what] = (later, getattr(later, what)())
        return made

    def _find_live_pages(self) -> None:
        """Where the pages of the newest version are in their files, much of which is garbage."""
        home = Home(self.path)
        for relation in home.read_manifest(self.newest).relations():
            index = load_index(home, relation)
            for file, block, blocks in zip(index.file, index.block, index.blocks, strict=True):
                begin = int(block) * BLOCK_BYTES
                self.live.setdefault(relation.files[file].name, []).append(
                    (begin, begin + int(blocks) * BLOCK_BYTES)
                )

    def files(self, home: Home) -> dict[str, list[Path]]:
        """Files by kind; most kinds have files of several versions."""
        found: dict[str, list[Path]] = {"manifest": [Path(home.manifest_path(at)) for at in home.versions()]}
        for version in home.versions():
            manifest = home.read_manifest(version)
            for at, relation in enumerate(manifest.relations()):
                of = "latest changes: " if at else ""
                found.setdefault(of + "data", []).extend(Path(file.path) for file in relation.files)
                found.setdefault(of + "index", []).append(Path(home.index_dir) / relation.index.name)
                if relation.filter:
                    found.setdefault(of + "filter", []).append(Path(home.index_dir) / relation.filter.name)
        found["record"] = sorted(Path(home.path).glob("queries/*/*.json"))
        found["place of records"] = sorted(Path(home.path).glob("places/*.json"))
        return {what: sorted(set(paths)) for what, paths in found.items()}


class Damage:
    """One file is replaced for a while."""

    def __init__(
        self, draw: Draw, path: Path, others: list[Path], live: list[tuple[int, int]] | None = None
    ) -> None:
        self.path = path
        self._live = live or []
        self._whole = path.read_bytes()
        others = [other for other in others if other != path and other.exists()]
        ways = [
            "flip",
            "flip",
            "flip",
            "flip",
            "fill",
            "cut",
            "append",
            *(["swap", "swap"] if others else []),
        ]
        # A removed manifest or record cannot be detected: the version does not exist, or was never chosen.
        ways += ["missing"] if path.suffix == ".arrow" else []
        self.way = draw.choice(ways)
        self._bytes = self._made(draw, others)
        self._renamed = draw.random() < 0.3

    def _made(self, draw: Draw, others: list[Path]) -> bytes | None:
        data = bytearray(self._whole)
        match self.way:
            case "flip":
                for _ in range(draw.choice([1, 1, 2, 25])):
                    data[self._place(draw)] ^= 1 << draw.randrange(8)
            case "fill":
                begin = self._place(draw)
                end = min(len(data), begin + draw.choice([1, 8, 512, 4096, 1 << 20]))
                data[begin:end] = (
                    draw.randbytes(end - begin)
                    if draw.random() < 0.5
                    else bytes([draw.choice([0, 1, 255])]) * (end - begin)
                )
            case "cut":
                del data[draw.choice([0, len(data) - 1, draw.randrange(len(data))]) :]
            case "append":
                data += draw.randbytes(draw.choice([1, 4096]))
            case "swap":
                return draw.choice(others).read_bytes()
            case "missing":
                return None
        return bytes(data)

    def _place(self, draw: Draw) -> int:
        """A position, mostly one that will be read."""
        if self._live and draw.random() < 0.8:
            return draw.randrange(*draw.choice(self._live))
        return draw.randrange(len(self._whole))

    def do(self) -> None:
        self._put(self._bytes)

    def undo(self) -> None:
        self._put(self._whole)

    def _put(self, data: bytes | None) -> None:
        """Damage the file in place, like a failing disk, or replace it, like a copy."""
        if data is None:
            self.path.unlink()
        elif self._renamed or not self.path.exists():
            aside = self.path.with_name("aside")
            aside.write_bytes(data)
            os.replace(aside, self.path)
        else:
            with self.path.open("r+b") as file:
                file.write(data)
                file.truncate()


class Attempt:
    """One copy of a master, one damage, one operation."""

    def __init__(self, work: Path, draw: Draw, template: Template) -> None:
        self.draw, self.template, self.model = draw, template, template.model
        self.work, self.path = work, work / "m"
        shutil.copytree(template.path, self.path)
        self.home = Home(self.path)
        self.outcome = "right"

    def cold(self) -> Counter[str]:
        files = self.template.files(self.home)
        what = self.draw.choice(sorted(files))
        chosen = self.draw.choice([self.draw.choice(files[what]), files[what][-1]])
        damage = Damage(self.draw, chosen, files[what], self.template.live.get(chosen.name))
        actions: dict[str, Callable[[], None]] = {
            "verify": self._verify,
            "read": self._read,
            "join": self._join,
            "change": self._change,
            "vacuum": self._vacuum,
            "query": self._query,
        }
        tried = self.draw.choice(["query", "vacuum"] if "record" in what else sorted(actions))
        damage.do()
        self._try(actions[tried], damage.path.name)
        if damage.path.exists() or damage.way == "missing":
            damage.undo()
        self._all_right()
        return self._counts(f"{what}, cold", tried, damage)

    def hot(self) -> Counter[str]:
        """Damage a file after an operator has answered a part of the stream."""
        files = self.template.files(self.home)
        what = self.draw.choice(
            [what for what in sorted(files) if "record" not in what and "latest" not in what]
        )
        chosen = self._of_newest(files[what], what)
        damage = Damage(self.draw, chosen, files[what], self.template.live.get(chosen.name))
        tried = self._try_running(damage, None)
        if damage.path.exists() or damage.way == "missing":
            damage.undo()
        self._all_right()
        return self._counts(f"{what}, hot", tried, damage)

    def page_memory(self) -> Counter[str]:
        """Damage a page file between two operators, or while one uses it."""
        pages = self.work / "pages"
        kind = self.draw.choice(_ON_PAGE_FILES)
        memory = self._memory(kind)
        with Master.open(self.path) as master:
            for _ in range(2):
                self._stream_through(kind, master, memory, pages)
            if self.draw.random() < 0.5:
                damage = Damage(self.draw, pages, [])
                damage.do()
                self._try(lambda: self._stream_through(kind, master, memory, pages), pages.name)
                return self._counts("page memory, cold", "join", damage)
        damage = Damage(self.draw, pages, [])
        tried = self._try_running(damage, pages, kind)
        return self._counts("page memory, hot", tried, damage)

    def _counts(self, what: str, tried: str, damage: Damage) -> Counter[str]:
        return Counter(["damages", what, f"{self.outcome}"])

    def _try(self, action: Callable[[], None], *names: object) -> None:
        try:
            action()
        except AssertionError:
            raise
        except Exception as error:  # noqa: BLE001 (a finding, unless adjoin raised it)
            refusal(error, *names)
            self.outcome = "refused"

    def _of_newest(self, paths: list[Path], what: str) -> Path:
        manifest = self.home.read_manifest(self.template.newest)
        named = {*manifest.file_names(), os.path.basename(self.home.manifest_path(manifest.version))}
        return self.draw.choice([path for path in paths if path.name in named])

    def _verify(self) -> None:
        with Master.open(self.path) as master:
            master.verify()

    def _read(self) -> None:
        with Master.open(self.path) as newest:
            version = self.draw.choice([newest.version, *newest.versions()])
            with newest.at(version) as master:
                assert multiset(rows_of(master)) == self.model.held(master.revision), "wrong rows"

    def _join(self) -> None:
        kind = self.draw.choice(OPERATORS)
        with Master.open(self.path) as master:
            self._stream_through(kind, master, int(kind.least_memory(master)) + _ROOM_BYTES)

    def _stream_through(self, kind: Any, master: Master, memory: int, path: Path | None = None) -> None:
        sales = self.model.sales(300)
        with self._operator(kind, master, memory, path) as operator:
            schema = operator.schema_of(sales.schema)
            table = pa.Table.from_batches(list(operator.run(sales.to_batches(60))), schema=schema)
        assert multiset(table) == self.model.joined(master.revision, sales), "wrong rows"

    def _memory(self, kind: Any) -> int:
        with Master.open(self.path) as master:
            return (
                int(kind.least_memory(master, pages=PageFile, shared_index=True))
                + self.draw.choice([1, 3]) * _ROOM_BYTES
            )

    @contextmanager
    def _operator(self, kind: Any, master: Master, memory: int, path: Path | None) -> Iterator[Any]:
        if path is None:
            with kind(master, on="id", how="left", memory=memory) as operator:
                yield operator
        else:
            with (
                PageFile(path, memory) as pages,
                kind(master, on="id", how="left", memory=memory, pages=pages, shared_index=True) as operator,
            ):
                yield operator

    def _try_running(self, damage: Damage, path: Path | None, kind: Any = None) -> str:
        kind = kind or self.draw.choice(OPERATORS)
        sales = self.model.sales(400)
        batches = sales.to_batches(self.draw.choice([20, 60, 150]))
        at = self.draw.randrange(len(batches))
        found: list[pa.RecordBatch] = []

        def run() -> None:
            with Master.open(self.path) as master:
                memory = (
                    self._memory(kind)
                    if path
                    else int(kind.least_memory(master)) + self.draw.choice([1, 40]) * 4096
                )
                with self._operator(kind, master, memory, path) as operator:
                    for number, batch in enumerate(batches):
                        if number == at:
                            damage.do()
                        found.extend(operator.push(batch))
                    found.extend(operator.finish())
                    schema = operator.schema_of(sales.schema)
                table = pa.Table.from_batches(found, schema=schema)
                assert multiset(table) == self.model.joined(master.revision, sales), "wrong rows"

        self._try(run, damage.path.name)
        wrong = set(multiset(pa.Table.from_batches(found))) if found else set()
        with_newest = set(self.model.joined(self.model.revision, sales))
        assert wrong <= with_newest, "wrong rows before the error"
        return kind.__name__

    def _change(self) -> None:
        what = self.draw.choice(sorted(self.template.following))
        self.model, step = self.template.following[what]
        step.act(self.path)

    def _vacuum(self) -> None:
        with Master.open(self.path) as master:
            master.vacuum(keep=self.draw.choice([1, 3]))

    def _query(self) -> None:
        number = self.draw.choice([1, 2, 2])
        found = QueryRecords(self.path).version_for(QUERY, number)
        assert found == self.template.recorded[number], "a different version than before"

    def _all_right(self) -> None:
        """With the damage undone, every version is intact and no needed one is missing."""
        with Master.open(self.path) as newest:
            assert newest.version >= self.template.newest
            for version in newest.versions():
                with newest.at(version) as master:
                    if version == newest.version:
                        master.verify()
                    assert multiset(rows_of(master)) == self.model.held(master.revision), (
                        "wrong rows afterwards"
                    )
        recorded = QueryRecords(self.path).pinned()
        assert recorded >= {self.template.recorded[number] for number in (1, 2)}
        assert recorded <= set(self.home.versions()), "a version that a query needs is gone"


def _damaged_snapshot(
    draw: Draw, older: dict[str, bytes], newer: dict[str, bytes]
) -> tuple[str, dict[str, bytes]]:
    """The damage to one value, and all values including it."""
    chosen = draw.choice(sorted(newer))
    value = newer[chosen]
    others = [other for other in {**newer, **older}.values() if other != value]
    way = draw.choice(["none", "flip", "flip", "cut", "swap", "older", "missing"])
    flipped = bytearray(value)
    flipped[draw.randrange(len(value))] ^= 1 << draw.randrange(8)
    values = {
        "none": value,
        "flip": bytes(flipped),
        "cut": value[: draw.randrange(len(value))],
        "swap": draw.choice(others),
        "older": older.get(chosen, b""),
    }
    if way == "missing":
        return way, {name: held for name, held in newer.items() if name != chosen}
    return way, {**newer, chosen: values[way]}


def snapshots(work: Path, draw: Draw) -> Counter[str]:
    """Damage values of a stream join's snapshot: it is rejected, or the pairs are right."""
    name = draw.choice(sorted(inputs.JOINS))
    left, right = (inputs.Input(schema, draw.getrandbits(32), 40) for schema in (inputs.LEFT, inputs.RIGHT))
    found: list[pa.RecordBatch] = []
    saved: list[dict[str, bytes]] = []
    with inputs.small(name, is_tight=name != "shj") as join:
        for _ in range(2):
            for side, rows in (("left", left), ("right", right)):
                found.extend(join.push(side, rows.draw(draw.choice([5, 60, 200]))))
            saved.append(dict(join.snapshot()))
    way, damaged = _damaged_snapshot(draw, *saved)
    outcome = "right"
    try:
        with inputs.small(name, is_tight=name != "shj") as join:
            join.restore(damaged.items())
            found.extend(join.finish())
        wanted = inputs.expected(left.table, right.table, "l.k = r.k")
        assert inputs.pairs_of(found) == wanted, f"{name}, {way}: wrong pairs"
    except AssertionError:
        raise
    except Exception as error:
        refusal(error)
        if way == "none":
            raise AssertionError("a whole snapshot is refused") from error
        outcome = "refused"
    return Counter({"damages": way != "none", f"snapshot, {way}": 1, outcome: 1})


@contextmanager
def _opened(work: Path, ways: list[Callable[[Attempt], Counter[str]]]) -> Iterator[Case]:
    """Some templates, and cases that each use one of them."""
    draw = Draw("templates")
    templates = [
        Template.made(work / f"template {number}" / "m", draw, key, has_sequence)
        for number, (key, has_sequence) in enumerate(
            [("int64", False), ("string", True), ("double", False), ("int32", True)]
        )
    ]

    def case(draw: Draw) -> Counter[str]:
        remove(work / "case")
        (work / "case").mkdir()
        return draw.choice(ways)(Attempt(work / "case", draw, draw.choice(templates)))

    yield case


def files_of_masters(work: Path) -> AbstractContextManager[Case]:
    """Cases with a damaged file of a master."""
    return _opened(work, [Attempt.cold, Attempt.hot])


def page_memory(work: Path) -> AbstractContextManager[Case]:
    """Cases with a damaged file of page memory."""
    return _opened(work, [Attempt.page_memory])


def everything(work: Path) -> AbstractContextManager[Case]:
    """Cases of both kinds."""
    return _opened(work, [Attempt.cold, Attempt.hot, Attempt.page_memory])
