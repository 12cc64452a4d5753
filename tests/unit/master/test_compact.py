import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin.errors import ConflictError, CorruptionError, OptionError
from adjoin.master.data_file import DataFile
from adjoin.master.index import PageIndex
from adjoin.master.master import Master
from adjoin.master.numbered_change import NumberedChange, Planned
from adjoin.master.page_moves import files_to_empty, same_pages, worth_emptying
from adjoin.master.versions import Home
from adjoin.memory.arena import BLOCK_BYTES
from tests.unit.master.disk_use import assert_bounded, live_bytes, named_and_present, used_bytes
from tests.unit.master.tables import build_master, changes, multiset, rows_of


def _table(keys: range | list[int], value: str = "x" * 100) -> pa.Table:
    return pa.table({"key": pa.array(keys, pa.int64()), "value": [value] * len(keys)})


def _upserts(keys: list[int], value: str) -> pa.Table:
    return changes([("upsert", key, value) for key in keys], pa.int64())


def _scattered(path: Path, rows: int = 4000, commits: int = 12, **options: Any) -> Master:
    """A master with pages in many files that are mostly garbage."""
    master = build_master(_table(range(rows)), "key", path, page_bytes=4096, **options)
    for commit in range(commits):
        keys = list(range(commit % 3, rows, 97))
        master = master.apply(_upserts(keys, f"commit {commit} " + "y" * 90), keep=None)
    return master


@pytest.mark.parametrize("filter_bits", [0, 8])
def test_compacting_keeps_every_row_and_page(filter_bits: int, tmp_path: Path) -> None:
    master = _scattered(tmp_path / "m", filter_bits=filter_bits)
    rows = multiset(rows_of(master))
    compacted = master.compact()
    assert (compacted.version, compacted.revision) == (master.version + 1, master.revision)
    assert len(compacted.files) == 1
    assert compacted.files[0].bytes < compacted.bytes * 1.02 + 8192
    assert same_pages(master.index, compacted.index)
    assert multiset(rows_of(compacted)) == rows
    compacted.verify()
    master.verify()
    compacted.vacuum(keep=1)
    assert compacted.compact().version == compacted.version


def test_a_compacted_master_is_little_larger_than_its_pages(tmp_path: Path) -> None:
    path = tmp_path / "m"
    master = _scattered(path)
    before = used_bytes(path)
    master.close()
    del master
    with Master.open(path) as newest:
        newest.compact().close()
    with Master.open(path) as newest:
        newest.vacuum(keep=1)
        assert used_bytes(path) < 1.1 * live_bytes(path) < before / 2
        named, present = named_and_present(newest)
        assert named == present


def test_pages_thinned_out_by_deletes_are_merged(tmp_path: Path) -> None:
    master = build_master(_table(range(4000)), "key", tmp_path / "m", page_bytes=8192, filter_bits=8)
    gone = [key for key in range(4000) if key % 10 and key < 3000]
    thin = master.apply(changes([("delete", key, None) for key in gone], pa.int64()), keep=None)
    compacted = thin.compact()
    assert compacted.pages < thin.pages / 2
    assert compacted.bytes < thin.bytes * 0.6
    assert multiset(rows_of(compacted)) == multiset(rows_of(thin))
    compacted.verify()
    again = compacted.apply(_upserts([5, 100, 3500], "new"), keep=None)
    assert again.revision == compacted.revision + 1
    again.verify()


def test_pages_with_rows_of_different_lengths_are_merged_only_where_it_helps(tmp_path: Path) -> None:
    values = ["x" * 3000 if key < 500 else "x" for key in range(20_000)]
    table = pa.table({"key": pa.array(range(20_000), pa.int64()), "value": values})
    master = build_master(table, "key", tmp_path / "m", page_bytes=4096)
    compacted = master.compact()
    assert compacted.pages == master.pages
    compacted.verify()


def test_a_master_with_several_layouts_is_compacted_to_one(tmp_path: Path) -> None:
    master = _scattered(tmp_path / "m", rows=1500, commits=4)
    master = master.evolve(add={"color": "string"}, rename={"value": "text"})
    more = pa.table({"_op": ["upsert"] * 3, "key": [5, 700, 1499], "text": ["a"] * 3, "color": ["red"] * 3})
    master = master.apply(more, keep=None)
    rows = multiset(rows_of(master))
    compacted = master.compact()
    compacted.verify()
    assert len(compacted.files) == 1
    assert multiset(rows_of(compacted)) == rows
    wide = compacted.evolve(add={"size": "int64"}).compact()
    wide.verify()


def test_records_of_latest_changes_are_compacted_too(tmp_path: Path) -> None:
    master = build_master(_table(range(3000)), "key", tmp_path / "m", page_bytes=4096)
    for number in range(6):
        keys = list(range(500 * number, 500 * number + 500))
        changed = _upserts(keys, f"{number}").append_column("at", pa.array([number] * len(keys)))
        master = master.apply(changed, sequence="at", keep=None)
    home = Home(master.path)
    latest = home.read_manifest(master.version).latest
    compacted = master.compact()
    moved = home.read_manifest(compacted.version).latest
    assert latest is not None
    assert moved is not None
    assert len(latest.relation.files) > len(moved.relation.files) == 1
    compacted.verify()
    late = _upserts([5], "too late").append_column("at", pa.array([-1]))
    assert multiset(rows_of(compacted.apply(late, sequence="at"))) == multiset(rows_of(compacted))


def test_damaged_pages_are_not_copied(tmp_path: Path) -> None:
    master = _scattered(tmp_path / "m", commits=3)
    path = Path(master.files[0].path)
    data = bytearray(path.read_bytes())
    data[int(master.index.block[master.index.file == 0][0]) * BLOCK_BYTES + 100] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match=path.name):
        master.compact()
    named, present = named_and_present(master)
    assert named == present


def _before_the_commit(monkeypatch: pytest.MonkeyPatch, rival: Callable[[], object]) -> None:
    """Let a rival act once, right before the first commit."""
    commit = Home.commit

    def late(home: Home, manifest: Any) -> None:
        monkeypatch.setattr(Home, "commit", commit)
        rival()
        commit(home, manifest)

    monkeypatch.setattr(Home, "commit", late)


def test_changes_prepared_before_a_compaction_are_committed_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = _scattered(tmp_path / "m", filter_bits=8)
    _before_the_commit(monkeypatch, lambda: Master.open(master.path).compact())
    newer = master.apply(_upserts([3, 5000], "late"), txn="late", keep=None)
    assert (newer.version, newer.revision) == (master.version + 2, master.revision + 1)
    newer.verify()
    assert rows_of(newer).filter(pa.compute.field("key") == 3)["value"].to_pylist() == ["late"]
    assert len(newer.files) == 2
    named, present = named_and_present(newer)
    assert named == present


def test_a_master_opened_before_a_compaction_can_be_changed(tmp_path: Path) -> None:
    master = _scattered(tmp_path / "m")
    master.compact()
    newer = master.apply(_upserts([3], "new"))
    assert newer.revision == master.revision + 1
    with pytest.raises(ConflictError):
        master.apply(_upserts([3], "stale"))


def test_a_compaction_overtaken_by_a_writer_moves_the_remaining_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = _scattered(tmp_path / "m")
    keys = list(range(0, 2000, 11))
    _before_the_commit(
        monkeypatch,
        lambda: Master.open(master.path).apply(_upserts(keys, "rival"), keep=None),
    )
    compacted = master.compact()
    compacted.verify()
    assert (compacted.version, compacted.revision) == (master.version + 2, master.revision + 1)
    assert len(compacted.files) == 2
    assert rows_of(compacted)["value"].to_pylist().count("rival") == len(keys)
    named, present = named_and_present(compacted)
    assert named == present


def test_a_compaction_overtaken_by_another_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    master = _scattered(tmp_path / "m")
    _before_the_commit(monkeypatch, lambda: Master.open(master.path).compact())
    compacted = master.compact()
    assert compacted.version == master.version + 1
    compacted.verify()
    named, present = named_and_present(compacted)
    assert named == present


def test_a_numbered_change_is_settled_and_repeated_across_compactions(tmp_path: Path) -> None:
    master = _scattered(tmp_path / "m")
    seen: list[int] = []

    def plan(base: Master) -> Planned:
        seen.append(base.revision)
        Master.open(tmp_path / "m").compact()
        return Planned(_upserts([1], "planned"))

    settled = NumberedChange(master, ("load", 0)).settle(plan)
    assert (settled.before.revision, settled.after.revision) == (master.revision, master.revision + 1)
    assert settled.after.version == settled.before.version + 2
    settled.after.compact()
    versions = settled.before.version, settled.after.version
    del settled, master
    newest = Master.open(tmp_path / "m")
    newest.vacuum(keep=1)
    again = NumberedChange(newest, ("load", 0)).settle(plan)
    assert again.is_repetition
    assert (again.before.version, again.after.version) == versions
    assert len(seen) == 1


def test_upkeep_can_be_turned_off(tmp_path: Path) -> None:
    master = build_master(_table(range(100)), "key", tmp_path / "m")
    for number in range(30):
        master = master.apply(_upserts([number], "new"), keep=False if number % 2 else None)
    assert len(master.versions()) == 31
    master = master.apply(_upserts([1], "newer"), keep=3)
    assert master.versions() == [30, 31, 32]
    assert len(master.files) < 8


@pytest.mark.parametrize("keep", [0, -1, 1.5, "all", True])
def test_invalid_numbers_of_versions_are_refused(keep: Any, tmp_path: Path) -> None:
    master = build_master(_table(range(10)), "key", tmp_path / "m")
    with pytest.raises(OptionError, match="keep="):
        master.apply(_upserts([1], "new"), keep=keep)
    assert master.versions() == [1]


def _files(sizes: list[int], live: list[int]) -> tuple[list[DataFile], PageIndex]:
    """Files with the given numbers of blocks and live blocks; every live block is a page."""
    data_files = [DataFile(str(at), "", size * BLOCK_BYTES, 0, 0, 0) for at, size in enumerate(sizes)]
    file = np.repeat(np.arange(len(live)), live).astype(np.int32)
    keys = np.arange(len(file), dtype=np.int64)
    ones = np.ones(len(file), np.int32)
    return data_files, PageIndex(keys, keys, file, ones, ones, ones, keys.astype(np.uint64))


def test_a_commit_moves_enough_and_no_more_than_stated() -> None:
    """For random files, the rules of `page_moves` hold after a commit, at no more than the stated cost."""
    rng = random.Random(7)
    for _ in range(200):
        sizes = [rng.choice([1, 16, 300, 2000, 9000]) for _ in range(rng.randint(1, 40))]
        live = [rng.randint(1, size) for size in sizes]
        data_files, index = _files(sizes, live)
        chosen = set(files_to_empty(data_files, index).tolist())
        moved = sum(live[at] for at in chosen)
        left = sum(size for at, size in enumerate(sizes) if at not in chosen) + moved
        is_little = sum(sizes) * BLOCK_BYTES <= 1 << 20
        assert is_little or left <= 1.5 * sum(live) + 1
        excess = max(0, sum(sizes) - 1.5 * sum(live))
        largest = max((live[at] for at in chosen), default=0)
        assert moved <= 2 * excess + largest + (64 << 20) // BLOCK_BYTES
        assert set(worth_emptying(data_files, index).tolist()) >= chosen or len(chosen) == 0


def test_a_few_small_files_are_not_merged() -> None:
    data_files, index = _files([20] * 7, [20] * 7)
    assert len(files_to_empty(data_files, index)) == 0
    data_files, index = _files([20] * 8 + [100_000], [20] * 8 + [100_000])
    assert files_to_empty(data_files, index).tolist() == list(range(8))


class _Model:
    """The expected rows of a master, and a history of small changes."""

    def __init__(self, path: Path, rows: int, seed: int) -> None:
        self.path = path
        self.rng = random.Random(seed)
        self.rows = dict.fromkeys(range(rows), "x" * 100)
        self.master = build_master(_table(range(rows)), "key", path, page_bytes=4096, filter_bits=4)

    def commit(self, number: int) -> None:
        keys = self.rng.sample(range(int(len(self.rows) * 1.1)), self.rng.choice([1, 3, 10]))
        deletes = {key for key in keys if self.rng.random() < 0.1}
        changed = [
            ("delete", key, None) if key in deletes else ("upsert", key, f"{number} " + "z" * 90)
            for key in keys
        ]
        for operation, key, value in changed:
            if operation == "delete":
                self.rows.pop(key, None)
            else:
                self.rows[key] = value or ""
        newer = self.master.apply(changes(changed, pa.int64()), txn=("stream", number))
        self.master.close()
        self.master = newer

    def check(self) -> None:
        table = rows_of(self.master)
        assert dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == self.rows


def _run(model: _Model, commits: int) -> None:
    """Commit with reopening, and occasionally open a reader that stays for a while."""
    pinned: list[Master] = []
    for number in range(commits):
        base = model.master.version
        model.commit(number)
        # The base was open while the commit vacuumed, as it is in any program.
        assert_bounded(model.path, [base, *(reader.version for reader in pinned)])
        if number % 250 == 100:
            pinned.append(model.master.at(model.master.version))
        if number % 250 == 160:
            pinned.pop().close()
        if number % 97 == 0:
            model.master.close()
            model.master = Master.open(model.path)
    model.check()
    model.master.verify()


def test_small_changes_keep_disk_use_within_bounds(tmp_path: Path) -> None:
    model = _Model(tmp_path / "m", 30_000, seed=1)
    _run(model, 60)


@pytest.mark.slow
def test_400_small_changes_of_7_megabytes_use_at_most_twice_that(tmp_path: Path) -> None:
    model = _Model(tmp_path / "m", 60_000, seed=2)
    assert used_bytes(tmp_path / "m") > 7e6
    _run(model, 400)
    print(f"{used_bytes(tmp_path / 'm'):,} of {live_bytes(tmp_path / 'm'):,} bytes are live")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_5000_commits_use_at_most_twice_the_live_bytes(tmp_path: Path) -> None:
    _run(_Model(tmp_path / "m", 20_000, seed=3), 5000)
