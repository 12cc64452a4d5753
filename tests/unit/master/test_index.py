"""The index and the filter in their mapped files: searched like those in memory, and never trusted."""

import os

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoin.errors import CorruptionError
from adjoin.kernels.search import locate_pages
from adjoin.master.filter import CheckedFilter, KeyFilter
from adjoin.master.index import CheckedIndex, PageIndex
from adjoin.master.master import Master
from adjoin.master.verify import require_plausible
from adjoin.master.versions import Home
from tests.unit.master.tables import build_master, products


def index_of(pages: int, seed: int, widest: int = 20) -> PageIndex:
    """Entries in key order; some pages share keys."""
    random = np.random.default_rng(seed)
    ends = np.cumsum(random.integers(0, widest, 2 * pages))
    file, block, blocks, rows = random.integers(1, 1000, (4, pages), np.int32)
    checksum = random.integers(0, 1 << 64, pages, np.uint64)
    return PageIndex(ends[::2], ends[1::2], file, block, blocks, rows, checksum)


def mapped(data: pa.Buffer) -> np.ndarray:
    return np.frombuffer(bytearray(data), np.uint8)


class Unverified:
    """A mapped file whose bytes a test changes."""

    def __init__(self, data: np.ndarray) -> None:
        self.bytes = data

    def check(self) -> None:
        return

    def damage(self, where: str) -> CorruptionError:
        return CorruptionError(where)


def checked(index: PageIndex) -> tuple[CheckedIndex, np.ndarray]:
    """The index, and its bytes, which a test can change."""
    data = mapped(index.to_bytes())
    return CheckedIndex(Unverified(data)), data


@given(
    pages=st.integers(0, 150),
    seed=st.integers(0, 99),
    keys=st.lists(st.integers(-5, 3000), max_size=40),
    reach=st.sampled_from([0, 1, 30, 2000, -1]),
)
def test_searching_the_file_gives_the_result_of_searching_in_memory(pages, seed, keys, reach):
    index = index_of(pages, seed)
    low = np.sort(np.array(keys, np.int64))
    both = checked(index)[0].locate(low, low + reach)
    for found, wanted in zip(both, locate_pages(low, low + reach, index.first, index.last), strict=True):
        assert found.tolist() == wanted.tolist()


@given(pages=st.integers(1, 150), seed=st.integers(0, 99))
def test_entries_are_read_back_as_they_were_written(pages, seed):
    index = index_of(pages, seed)
    chosen = np.random.default_rng(seed).integers(0, pages, 50)
    assert checked(index)[0].take(chosen).to_bytes().equals(index.take(chosen).to_bytes())
    assert checked(index)[0].typical_blocks == index.typical_blocks
    assert checked(index)[0].largest_blocks == index.largest_blocks
    assert checked(index)[0].nbytes == index.nbytes
    assert PageIndex.from_bytes(index.to_bytes().to_pybytes()).to_bytes().equals(index.to_bytes())


@pytest.mark.parametrize("seed", range(8))
def test_a_changed_file_never_gives_a_wrong_answer(seed):
    """Every answer is right, or an error names the block; both happen."""
    index = index_of(300, seed)
    random = np.random.default_rng(seed)
    low = np.sort(random.integers(0, int(index.last[-1]) + 5, 20))
    high = low + random.integers(0, 200, 20)
    pages = random.integers(0, 300, 20)
    spans = [span.tolist() for span in locate_pages(low, high, index.first, index.last)]
    entries = index.take(pages).to_bytes()
    refused = 0
    for _ in range(150):
        it, data = checked(index)
        for place in random.integers(0, len(data), random.integers(1, 30)):
            data[place] ^= np.uint8(1 << random.integers(8))
        try:
            assert [span.tolist() for span in it.locate(low, high)] == spans
            assert it.take(pages).to_bytes().equals(entries)
        except CorruptionError as error:
            refused += str(error).startswith("block")
    assert refused > 0


def test_a_change_of_any_word_of_an_entry_is_found():
    index = index_of(40, 1)
    for name in ("first", "last", "file", "block", "blocks", "rows", "checksum"):
        it, data = checked(index)
        begin = data.tobytes().index(getattr(index, name).tobytes())
        data[begin + 33 * getattr(index, name).itemsize] ^= 1
        it.take(np.arange(32))
        with pytest.raises(CorruptionError, match=r"block 1 \(the entries of pages 32 to 39\)"):
            it.take(np.array([3, 39]))


def test_blocks_of_another_index_are_found():
    """Every sum is right, but belongs to other entries."""
    it, data = checked(index_of(300, 1))
    data[:] = mapped(index_of(300, 2).to_bytes())
    with pytest.raises(CorruptionError, match="block 0"):
        it.locate(np.array([100]), np.array([100]))


@pytest.mark.parametrize("seed", range(4))
def test_a_changed_filter_loses_no_key(seed):
    random = np.random.default_rng(seed)
    keys = random.integers(-(1 << 62), 1 << 62, 2000)
    absent = random.integers(-(1 << 62), 1 << 62, 2000)
    filter_ = KeyFilter.for_keys(2000, 8)
    filter_.add(keys)
    refused = 0
    for flips in [0, *random.integers(1, 40, 60)]:
        data = mapped(filter_.to_bytes())
        it = CheckedFilter(Unverified(data))
        places = random.integers(0, len(data), flips)
        data[places] ^= np.uint8(1 << random.integers(8))
        try:
            assert it.contains(keys).all()
            assert flips or (it.contains(absent) == filter_.contains(absent)).all()
            it.contains(absent)
        except CorruptionError as error:
            refused += str(error).startswith("block")
    assert refused > 0


@pytest.fixture
def master(tmp_path) -> Master:
    return build_master(products(2000), "id", tmp_path / "m", filter_bits=8)


def paths_of(master: Master) -> tuple[str, str]:
    home = Home(master.path)
    manifest = home.read_manifest(1)
    assert manifest.filter is not None
    return os.path.join(home.index_dir, manifest.index.name), os.path.join(
        home.index_dir, manifest.filter.name
    )


@pytest.mark.parametrize("size", [0, 100, -1])
def test_truncating_a_mapped_file_raises_an_error_that_names_it(master, size):
    index, filter_ = master.checked_index, master.checked_filter
    assert filter_ is not None
    for path in paths_of(master):
        os.truncate(path, size if size >= 0 else os.path.getsize(path) - 1)
    with pytest.raises(CorruptionError, match=rf"{paths_of(master)[0]} is truncated"):
        index.locate(np.array([1]), np.array([1]))
    with pytest.raises(CorruptionError, match=rf"{paths_of(master)[0]} is truncated"):
        index.take(np.array([1]))
    with pytest.raises(CorruptionError, match=rf"{paths_of(master)[1]} is truncated"):
        filter_.contains(np.array([1]))


def test_impossible_entries_are_refused_even_with_correct_checksums(master):
    manifest = Home(master.path).read_manifest(1)
    require_plausible("the index", manifest, master.index)
    for name, value, fault in (
        ("file", 1, "a file that the manifest does not name"),
        ("file", -1, "has no file"),
        ("block", 1 << 20, "ends beyond its file"),
        ("blocks", 1 << 30, "ends beyond its file"),
        ("block", 0, "header"),
        ("rows", 0, "no rows"),
        ("blocks", -5, "no bytes"),
        ("rows", 5, "the manifest says 2000"),
        ("first", -7, "key order"),
    ):
        index = PageIndex.concat([master.index])
        getattr(index, name)[2] = value
        with pytest.raises(CorruptionError, match=f"the index: .*{fault}"):
            require_plausible("the index", manifest, index)
        with pytest.raises(CorruptionError, match=f"the index: .*{fault}"):
            require_plausible("the index", manifest, checked(index)[0])


def test_an_index_of_the_first_format_can_be_read():
    index = index_of(70, 3)
    names = ["first", "last", "file", "block", "blocks", "rows", "checksum"]
    batch = pa.record_batch([pa.array(getattr(index, name)) for name in names], names=names)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    assert PageIndex.from_first_format(sink.getvalue().to_pybytes()).to_bytes().equals(index.to_bytes())
