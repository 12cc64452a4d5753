"""A page file: the next user finds what the last one left, and never anything else."""

import errno
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adjoin import ArenaError, OptionError
from adjoin.memory.arena import Arena
from adjoin.memory.page_memory import BLOCK_BYTES, PageFile, PageMemory

MOST = 4 << 20


def occupied(path: Path) -> int:
    return os.stat(path).st_blocks * 512


def fill(path: Path, most: int = MOST) -> None:
    """Leave an array and a page in the file."""
    with PageFile(path, most) as file:
        assert file.recall("key") is None
        file.array("numbers", 1000, np.int32)[:] = np.arange(1000)
        file.map(BLOCK_BYTES, 10 * BLOCK_BYTES)[:BLOCK_BYTES] = 7
        file.leave({"answer": 42, "unit": 0.1})


def recalled(path: Path, key: str = "key", most: int = MOST) -> dict | None:
    with PageFile(path, most) as file:
        return file.recall(key)


def test_the_next_user_finds_what_was_left(tmp_path):
    fill(tmp_path / "a")
    with PageFile(tmp_path / "a", MOST) as file:
        assert file.recall("key") == {"answer": 42, "unit": 0.1}
        assert (file.array("numbers", 1000, np.int32) == np.arange(1000)).all()
        assert (file.map(BLOCK_BYTES, 10 * BLOCK_BYTES)[:BLOCK_BYTES] == 7).all()


def test_arrays_are_the_mapped_file_and_not_a_copy(tmp_path):
    with PageFile(tmp_path / "a", MOST) as file:
        file.recall("key")
        numbers = file.array("numbers", 1000, np.int32)
        numbers[:] = 5
        assert (tmp_path / "a").read_bytes().count(np.int32(5).tobytes()) == 1000
        assert (file.array("numbers", 10, np.int32) == 5).all()


def test_the_file_is_empty_under_another_key(tmp_path):
    fill(tmp_path / "a")
    assert recalled(tmp_path / "a", "another") is None
    assert occupied(tmp_path / "a") <= BLOCK_BYTES


def test_a_user_that_does_not_close_properly_leaves_nothing(tmp_path):
    fill(tmp_path / "a")
    assert recalled(tmp_path / "a") is not None  # and does not leave properly
    assert recalled(tmp_path / "a") is None


def test_an_abandoned_file_is_empty_and_can_be_used_again(tmp_path):
    with PageFile(tmp_path / "a", MOST) as file:
        file.recall("key")
        file.abandon()
        assert file.recall("key") is None
        file.leave({})
        assert file.recall("key") == {}


def test_a_second_user_at_the_same_time_is_refused(tmp_path):
    with PageFile(tmp_path / "a", MOST) as file:
        file.recall("key")
        with pytest.raises(OptionError, match="in use by another operator"):
            file.recall("key")


def test_a_file_from_before_the_last_boot_is_empty(tmp_path, monkeypatch):
    """A disk may have lost some of what was written before a power cut, whatever the header says."""
    fill(tmp_path / "a")
    monkeypatch.setattr("adjoin.memory.page_memory._boot", lambda: "another")
    assert recalled(tmp_path / "a") is None


def test_a_file_that_may_now_occupy_less_is_empty(tmp_path):
    fill(tmp_path / "a")
    assert recalled(tmp_path / "a", most=2 * BLOCK_BYTES) is None


@pytest.mark.parametrize("size", [0, 1, 100, BLOCK_BYTES, 3 * BLOCK_BYTES, -1])
def test_a_truncated_page_file_is_empty(tmp_path, size):
    fill(tmp_path / "a")
    os.truncate(tmp_path / "a", size if size >= 0 else os.path.getsize(tmp_path / "a") - 1)
    assert recalled(tmp_path / "a") is None


def test_a_file_without_its_blocks_is_empty(tmp_path):
    """As after a copy that skips zeros: touching such a page on a full file system would be fatal."""
    fill(tmp_path / "a")
    size = os.path.getsize(tmp_path / "a")
    header = (tmp_path / "a").read_bytes()[:BLOCK_BYTES]
    os.truncate(tmp_path / "a", 0)
    (tmp_path / "a").write_bytes(header)
    os.truncate(tmp_path / "a", size)
    assert recalled(tmp_path / "a") is None


@settings(max_examples=200)
@given(data=st.data())
def test_any_damage_to_the_header_is_detected(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("damage") / "a"
    fill(path)
    header = path.read_bytes()[:BLOCK_BYTES]
    length = len(header.rstrip(b"\0"))
    damaged = bytearray(header)
    for place in data.draw(st.lists(st.integers(0, length - 1), min_size=1, max_size=5, unique=True)):
        damaged[place] ^= data.draw(st.integers(1, 255))
    with path.open("r+b") as file:
        file.write(damaged)
    assert recalled(path) is None


@pytest.mark.parametrize(
    "garbage", [b"", b"\0" * 9000, os.urandom(9000), b"adjoin pages 1\n\0" + b"{" * 5000]
)
def test_a_file_with_other_contents_is_empty(tmp_path, garbage):
    (tmp_path / "a").write_bytes(garbage)
    assert recalled(tmp_path / "a") is None
    fill(tmp_path / "a")
    assert recalled(tmp_path / "a") is not None


def test_blocks_are_reserved_as_needed_and_released(tmp_path):
    """With an arena in the file, its blocks follow the slots in use."""
    with PageFile(tmp_path / "a", MOST) as file:
        file.recall("key")
        arena = Arena(2, 500, BLOCK_BYTES, 0, BLOCK_BYTES, file)
        before = occupied(tmp_path / "a")
        arena.grow(500)
        assert occupied(tmp_path / "a") == before
        taken = arena.take(10)
        assert (taken < 2 + 10).all()
        assert before < occupied(tmp_path / "a") <= before + (1 << 20)
        arena.free(taken)
        arena.free(arena.take(500))
        assert occupied(tmp_path / "a") == before + 500 * BLOCK_BYTES == file.occupied_bytes
        arena.shrink(300)
        assert occupied(tmp_path / "a") == before + 200 * BLOCK_BYTES == file.occupied_bytes


def test_blocks_stay_reserved_where_they_cannot_be_released(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no holes here")

    with PageFile(tmp_path / "a", MOST) as file:
        file.recall("key")
        arena = Arena(2, 100, BLOCK_BYTES, 0, BLOCK_BYTES, file)
        arena.grow(100)
        arena.free(arena.take(100))
        before = file.occupied_bytes
        monkeypatch.setattr("adjoin.memory.mapped_file._punch", refuse)
        arena.shrink(100)
        assert file.occupied_bytes == before
        arena.grow(100)
        arena.take(100)
        assert file.occupied_bytes == before


def test_the_file_never_occupies_more_than_its_maximum(tmp_path):
    with PageFile(tmp_path / "a", 10 * BLOCK_BYTES) as file:
        file.recall("key")
        file.array("numbers", 8 * BLOCK_BYTES, np.uint8)
        with pytest.raises(ArenaError, match=r"occupies 36,864 of at most 40,960 bytes and needs 8,192 more"):
            file.array("more", 2 * BLOCK_BYTES, np.uint8)
        assert occupied(tmp_path / "a") <= 10 * BLOCK_BYTES


def test_the_error_about_missing_space_suggests_what_to_do(tmp_path, monkeypatch):
    def refuse(descriptor: int, begin: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    with PageFile(tmp_path / "a", MOST) as file:
        file.recall("key")
        arena = Arena(2, 100, BLOCK_BYTES, 0, BLOCK_BYTES, file)
        arena.grow(100)
        monkeypatch.setattr(os, "posix_fallocate", refuse)
        with pytest.raises(ArenaError, match=r"/a has no room for 409,600 .*smaller memory=.*arena\.dir"):
            arena.take(5)
        assert arena.free_slots == 100


@pytest.fixture
def small_file_system(tmp_path):
    path = tmp_path / "small"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(path)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def test_a_full_file_system_raises_an_error_instead_of_a_signal(small_file_system):
    with PageFile(small_file_system / "a", MOST) as file:
        file.recall("key")
        arena = Arena(2, 500, BLOCK_BYTES, 0, BLOCK_BYTES, file)
        arena.grow(500)
        with pytest.raises(ArenaError, match="No space left"):
            arena.take(500)
    with PageFile(small_file_system / "a", MOST) as file:
        assert file.recall("key") is None
        file.array("numbers", 1000, np.int32)[:] = 1
        file.leave({})
        assert file.recall("key") == {}


def test_a_file_system_without_room_for_the_header(small_file_system):
    (small_file_system / "full").write_bytes(b"x" * (256 << 10))
    with PageFile(small_file_system / "a", MOST) as file, pytest.raises(ArenaError, match="No space left"):
        file.recall("key")


def test_a_path_that_is_not_a_usable_file_is_refused(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "missing/a", "."):
        with pytest.raises(ArenaError, match=r"arena\.dir|not a regular file"):
            PageFile(tmp_path / name, MOST)
    assert not (tmp_path / "target").exists()


def test_a_page_file_is_readable_only_by_its_owner(tmp_path):
    PageFile(tmp_path / "a", MOST).close()
    assert os.stat(tmp_path / "a").st_mode & 0o777 == 0o600


def fill_part(path: Path, leave: bool = True) -> None:
    """Leave an array and a page in a part of the file, and an array of the main user."""
    with PageFile(path, MOST) as file:
        part = file.part("other")
        file.recall("key")
        assert part.recall("key of part") is None
        file.array("numbers", 1000, np.int32)[:] = 1
        part.array("numbers", 1000, np.int32)[:] = 2
        part.map(0, 10 * BLOCK_BYTES)
        part.reserve(BLOCK_BYTES)
        part.map(0, 10 * BLOCK_BYTES)[:BLOCK_BYTES] = 7
        if leave:
            part.leave({"answer": 43})
        file.leave({"answer": 42})


def test_the_next_user_finds_what_was_left_in_a_part(tmp_path):
    fill_part(tmp_path / "a")
    with PageFile(tmp_path / "a", MOST) as file:
        part = file.part("other")
        assert file.recall("key") == {"answer": 42}
        assert part.recall("key of part") == {"answer": 43}
        assert (file.array("numbers", 1000, np.int32) == 1).all()
        assert (part.array("numbers", 1000, np.int32) == 2).all()
        assert (part.map(0, 10 * BLOCK_BYTES)[:BLOCK_BYTES] == 7).all()


@pytest.mark.parametrize("leave", [False, True])
def test_a_part_under_another_key_or_that_was_not_left_is_empty(tmp_path, leave):
    fill_part(tmp_path / "a", leave)
    with PageFile(tmp_path / "a", MOST) as file:
        part = file.part("other")
        assert file.recall("key") == {"answer": 42}
        assert part.recall("another key" if leave else "key of part") is None
        assert occupied(tmp_path / "a") == 2 * BLOCK_BYTES == file.occupied_bytes
        assert (part.array("numbers", 1000, np.int32) == 0).all()


@pytest.mark.parametrize("parts", [[], ["another"], ["other", "another"]])
def test_users_with_other_parts_find_nothing(tmp_path, parts):
    fill_part(tmp_path / "a")
    with PageFile(tmp_path / "a", MOST) as file:
        for name in parts:
            file.part(name)
        assert file.recall("key") is None


def test_a_part_is_lost_with_its_file(tmp_path):
    fill_part(tmp_path / "a")
    with PageFile(tmp_path / "a", MOST) as file:
        part = file.part("other")
        file.recall("key")
        file.empty()
        assert part.recall("key of part") is None
        assert file.occupied_bytes == BLOCK_BYTES


def test_a_part_that_is_emptied_repeatedly_does_not_grow_the_file(tmp_path):
    with PageFile(tmp_path / "a", MOST) as file:
        part = file.part("other")
        file.recall("key")
        part.recall("key")
        for length in (5000, 3000, 4000, 5000):
            part.array("numbers", length, np.int32)[:] = 1
            file.array("numbers", 100, np.int32)[:] = length
            part.array("more", length, np.int32)[:] = 2
            assert (part.array("numbers", length, np.int32) == 1).all()
            part.empty()
        assert os.path.getsize(tmp_path / "a") <= 13 * BLOCK_BYTES


def test_a_part_of_a_file_in_use_is_refused(tmp_path):
    with PageFile(tmp_path / "a", MOST) as file:
        file.recall("key")
        with pytest.raises(OptionError, match="in use by another operator"):
            file.part("other")


def test_private_memory_recalls_nothing():
    memory = PageMemory()
    memory.recall("key")
    memory.leave({"answer": 42})
    assert memory.recall("key") is None
