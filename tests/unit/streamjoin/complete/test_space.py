"""Where pages are: the space of a file, and the directory of its pages."""

import errno
import os
from typing import Any

import numpy as np
import pytest

from adjoin import CorruptionError, StorageError
from adjoin.streamjoin.complete.directory import ENTRY, PageDirectory
from adjoin.streamjoin.complete.match_log import MatchLog
from adjoin.streamjoin.complete.space import Segments
from adjoin.streamjoin.disk.spill_file import SpillFile


def test_segments_against_a_list_of_pages():
    random, segments = np.random.default_rng(1), Segments(64 << 10)
    pages: dict[int, int] = {}
    for _ in range(300):
        if random.random() < 0.6:
            lengths = random.choice([4096, 8192, 65_536], random.integers(1, 9), p=[0.6, 0.35, 0.05])
            mark = segments.mark()
            places = segments.take(lengths)
            if random.random() < 0.2:
                segments.undo(mark)
            else:
                assert not set(places.tolist()) & set(pages)
                pages |= dict(zip(places.tolist(), lengths.tolist(), strict=True))
        elif pages:
            gone = random.choice(list(pages), random.integers(1, len(pages) + 1), replace=False)
            segments.release(gone, np.array([pages.pop(place) for place in gone.tolist()]))
        segments.check_invariants(np.array(list(pages), np.int64), np.array(list(pages.values()), np.int64))
        assert segments.end >= max((place + length for place, length in pages.items()), default=0)


def test_free_segments_are_used_again():
    segments = Segments(64 << 10)
    lengths = np.full(16, 4096)
    first = segments.take(lengths)
    segments.take(lengths)
    end = segments.end
    segments.release(first, lengths)
    assert set(segments.take(lengths).tolist()) == set(first.tolist())
    assert segments.end == end


def entries(first: int, count: int) -> Any:
    made = np.zeros(count, ENTRY)
    made["place"] = first + np.arange(count)
    made["rows"] = 1
    return made


def places(directory: PageDirectory) -> list[int]:
    return [int(e["place"]) for _, some in directory.scan() for e in some if e["rows"]]


@pytest.mark.parametrize("memory", [0, 30_000])
def test_a_directory_keeps_what_memory_cannot_hold_in_a_file(memory):
    random = np.random.default_rng(2)
    directory, held = PageDirectory(memory, SpillFile), list[int]()
    for step in range(400):
        count = int(random.integers(1, directory.chunk_entries + 1))
        directory.make_room(count)
        directory.append(entries(1_000 * step, count))
        held += range(1_000 * step, 1_000 * step + count)
        if step % 7 == 6:
            gone = set(random.choice(held, len(held) // 3, replace=False).tolist())
            for number, some in directory.scan():
                some["rows"][np.isin(some["place"], list(gone))] = 0
                directory.changed(number, some)
            held = [place for place in held if place not in gone]
            directory.tidy()
        directory.check_invariants()
        assert places(directory) == held
    assert directory.file_bytes > 0
    directory.close()


def test_a_directory_forgets_what_was_undone():
    directory = PageDirectory(0, SpillFile)
    for step in range(5):
        directory.make_room(5)
        directory.append(entries(10 * step, 5))
    directory.cut(12)
    assert places(directory) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14, 20, 21]
    directory.close()


def test_a_damaged_directory_is_found():
    files: list[SpillFile] = []

    def opened() -> SpillFile:
        files.append(SpillFile())
        return files[0]

    directory = PageDirectory(0, opened)
    for step in range(9):
        directory.make_room(8)
        directory.append(entries(10 * step, 8))
    os.pwrite(files[0].descriptor, b"\x55", files[0].bytes - 500)
    with pytest.raises(CorruptionError, match="directory"):
        places(directory)
    directory.close()


def refused(*_: Any) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_changes_no_directory(monkeypatch):
    directory = PageDirectory(0, SpillFile)
    for step in range(3):
        directory.make_room(8)
        directory.append(entries(10 * step, 8))
    before = places(directory)
    with monkeypatch.context() as disk:
        disk.setattr("adjoin.streamjoin.disk.spill_file.os.pwrite", refused)
        with pytest.raises(StorageError):
            directory.make_room(8)
        for number, some in directory.scan():
            some["unmatched"] = number + 1
            directory.changed(number, some)
        assert places(directory) == before
    assert [set(some["unmatched"].tolist()) for _, some in directory.scan()] == [{1}, {2}, {3}]
    directory.changed(0, next(iter(directory.scan()))[1])
    directory.make_room(8)
    assert [set(some["unmatched"].tolist()) for _, some in directory.scan()] == [{1}, {2}, {3}, set()]
    directory.close()


@pytest.mark.parametrize("memory", [0, 100, 10_000])
def test_matches_are_recorded_until_they_are_asked_for(memory, monkeypatch):
    random, log = np.random.default_rng(3), MatchLog(memory, SpillFile)
    log.add(np.arange(5))
    assert len(log.numbers()) == 0
    log.start()
    for _ in range(3):
        held: list[int] = []
        for _ in range(20):
            numbers = random.integers(0, 1 << 40, random.integers(0, 30))
            with monkeypatch.context() as disk:
                if random.random() < 0.2:
                    disk.setattr("adjoin.streamjoin.disk.spill_file.os.pwrite", refused)
                log.add(numbers)
            held += numbers.tolist()
        assert log.numbers().tolist() == sorted(held)
        log.clear()
        assert len(log.numbers()) == 0
        assert log.file_bytes == 0
    log.close()
