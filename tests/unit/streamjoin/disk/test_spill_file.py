"""The directory of blocks: entries as in a list, few of them in memory, none lost when the disk refuses."""

import errno
from typing import Any

import numpy as np
import pytest

from adjoin import CorruptionError, StorageError
from adjoin.streamjoin.disk.spill_file import CHUNK_ENTRIES, ENTRY, Directory, SpillFile


def entry(number: int) -> Any:
    return np.array((number, 1, 1, number % 7, -1, number, number * 31 % 101, 200, number), ENTRY)


def filled(count: int, most_chunks: int = 2) -> tuple[Directory, list[Any]]:
    directory, entries = Directory(most_chunks, SpillFile), [entry(number) for number in range(count)]
    for each in entries:
        directory.make_room()
        directory.append(each)
        directory.check_invariants()
    return directory, entries


def contents(directory: Directory, first: int = 0) -> list[Any]:
    return [each for _, some in directory.scan(first) for each in some.tolist()]


@pytest.mark.parametrize("count", [0, 1, CHUNK_ENTRIES, 2 * CHUNK_ENTRIES + 1, 20 * CHUNK_ENTRIES + 5])
@pytest.mark.parametrize("most_chunks", [2, 5, 100])
def test_entries_are_those_of_a_list(count, most_chunks):
    random = np.random.default_rng(count)
    directory, entries = filled(count, most_chunks)
    for number in random.integers(0, count, 60) if count else ():
        directory.change(int(number), "group", 9)
        entries[number]["group"] = 9
        assert directory.entry(int(number)).tolist() == entries[number].tolist()
        directory.check_invariants()
    assert contents(directory) == [each.tolist() for each in entries]
    for first in (0, count // 2, max(0, count - 1)):
        assert contents(directory, first) == [each.tolist() for each in entries[first:]]
    kept = count // 3
    directory.cut(kept)
    for number in range(5):
        directory.make_room()
        directory.append(entry(1_000 + number))
    wanted = [*entries[:kept], *(entry(1_000 + number) for number in range(5))]
    assert contents(directory) == [each.tolist() for each in wanted]
    assert len(directory) == kept + 5
    directory.close()


def test_a_failing_disk_changes_nothing(monkeypatch):
    directory, entries = filled(3 * CHUNK_ENTRIES)

    def refused(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as disk:
        disk.setattr("adjoin.streamjoin.disk.spill_file.os.pwrite", refused)
        with pytest.raises(StorageError, match="no space left"):
            directory.make_room()
    directory.make_room()
    directory.append(entry(7))
    assert contents(directory) == [each.tolist() for each in [*entries, entry(7)]]
    directory.close()


def test_a_damaged_chunk_is_an_error():
    file = SpillFile()
    directory = Directory(2, lambda: file)
    for number in range(4 * CHUNK_ENTRIES):
        directory.make_room()
        directory.append(entry(number))
    file.write(100, np.array([77], np.uint8))
    with pytest.raises(CorruptionError, match="directory of spilled blocks is damaged"):
        directory.entry(0)
    with pytest.raises(CorruptionError, match="directory of spilled blocks is damaged"):
        contents(directory)
    directory.close()
