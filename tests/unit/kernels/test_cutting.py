import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from adjoin.kernels.cutting import cut_groups, cut_rows, seal_messages
from adjoin.kernels.hashing import hash_bytes


def _greedy(sizes: list[int], limit: int) -> list[int]:
    starts, used = [], 0
    for row, size in enumerate(sizes):
        if row == 0 or used + size > limit:
            starts.append(row)
            used = 0
        used += size
    return starts


@given(st.lists(st.integers(0, 50)), st.integers(-5, 100))
def test_pages_are_filled_greedily(sizes: list[int], limit: int) -> None:
    starts = np.empty(len(sizes) + 1, np.int64)
    pages = cut_rows(np.array(sizes, np.int64), limit, starts)
    assert starts[:pages].tolist() == _greedy(sizes, limit)


@given(st.lists(st.lists(st.integers(0, 50), min_size=1)), st.integers(10, 100), st.integers(10, 100))
def test_groups_are_split_only_when_they_overflow(groups: list[list[int]], keep: int, limit: int) -> None:
    expected: list[int] = []
    base = 0
    for sizes in groups:
        cuts = [0] if sum(sizes) <= keep else _greedy(sizes, limit)
        expected += [base + cut for cut in cuts]
        base += len(sizes)
    row_bytes = np.array([size for group in groups for size in group], np.int64)
    labels = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    starts = np.empty(len(row_bytes) + 1, np.int64)
    pages = cut_groups(row_bytes, labels, keep, limit, starts)
    assert starts[:pages].tolist() == expected


def test_the_body_of_a_sealed_message_includes_its_padding() -> None:
    batch = pa.record_batch({"a": [1, 2, 3], "b": ["x", None, "zz"]})
    message = batch.serialize().to_pybytes()
    start, stop = 64, 4096
    data = np.zeros(stop + 10, np.uint8)
    data[start : start + len(message)] = np.frombuffer(message, np.uint8)
    metadata, checksums = np.empty(1, np.int32), np.empty(1, np.uint64)
    seal_messages(data, np.array([start]), np.array([stop]), metadata, checksums)
    sealed = pa.ipc.read_message(pa.py_buffer(data[start:stop].tobytes()))
    assert sealed.body.size == stop - start - int(metadata[0])
    assert pa.ipc.read_record_batch(sealed, batch.schema).equals(batch)
    assert checksums[0] == hash_bytes(data, start, stop)
