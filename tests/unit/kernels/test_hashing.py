import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoin.kernels.hashing import chain_slices, chain_words, hash_bytes, hash_ranges

_MASK = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    11400714785074694791,
    14029467366897019727,
    1609587929392839161,
    9650029242287828579,
    2870177450012600261,
)


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _round(lane: int, word: int) -> int:
    return _rotate((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def xxh64(data: bytes, seed: int = 0) -> int:
    """XXH64 in plain Python, as specified."""
    at, end = 0, len(data)
    if end >= 32:
        lanes = [(seed + start) & _MASK for start in (_P1 + _P2, _P2, 0, -_P1)]
        while at + 32 <= end:
            for lane in range(4):
                word = int.from_bytes(data[at + 8 * lane : at + 8 * lane + 8], "little")
                lanes[lane] = _round(lanes[lane], word)
            at += 32
        total = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            total = ((total ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        total = (seed + _P5) & _MASK
    total = (total + end) & _MASK
    while at + 8 <= end:
        total ^= _round(0, int.from_bytes(data[at : at + 8], "little"))
        total = (_rotate(total, 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= end:
        total ^= int.from_bytes(data[at : at + 4], "little") * _P1 & _MASK
        total = (_rotate(total, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        total = _rotate(total ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    total = (total ^ total >> 33) * _P2 & _MASK
    total = (total ^ total >> 29) * _P3 & _MASK
    return total ^ total >> 32


@pytest.mark.parametrize(
    ("text", "expected"),
    [(b"", 0xEF46DB3751D8E999), (b"a", 0xD24EC4F1A98C6E5B), (b"abc", 0x44BC2CF5AD770999)],
)
def test_known_answers(text: bytes, expected: int) -> None:
    data = np.frombuffer(bytearray(text), np.uint8)
    assert int(hash_bytes(data, 0, len(data))) == expected == xxh64(text)


@given(st.binary(max_size=200), st.integers(0, 9))
def test_any_bytes_at_any_offset(text: bytes, start: int) -> None:
    data = np.frombuffer(bytearray(start) + text + b"rest", np.uint8)
    assert int(hash_bytes(data, start, start + len(text))) == xxh64(text)


@given(st.lists(st.binary(max_size=80)), st.integers(0, _MASK))
def test_columns_hash_as_their_values(values: list[bytes], seed: int) -> None:
    data = np.frombuffer(bytearray(b"".join(values)) + b"\0", np.uint8)
    offsets = np.cumsum([0, *map(len, values)])
    for dtype in (np.int32, np.int64):
        hashes = np.full(len(values), seed, np.uint64)
        chain_slices(hashes, data, offsets.astype(dtype))
        assert hashes.tolist() == [xxh64(value, seed) for value in values]
    assert hash_ranges(data, offsets[:-1], offsets[1:]).tolist() == [xxh64(value) for value in values]


@given(st.lists(st.integers(0, _MASK)), st.integers(0, _MASK))
def test_words_hash_as_their_eight_bytes(values: list[int], seed: int) -> None:
    hashes = np.full(len(values), seed, np.uint64)
    chain_words(hashes, np.array(values, np.uint64))
    assert hashes.tolist() == [xxh64(value.to_bytes(8, "little"), seed) for value in values]


def test_a_chain_depends_on_the_order_of_columns() -> None:
    left, right = np.array([1, 2, 5], np.uint64), np.array([2, 1, 5], np.uint64)
    one, other = np.zeros(3, np.uint64), np.zeros(3, np.uint64)
    for column in (left, right):
        chain_words(one, column)
    for column in (right, left):
        chain_words(other, column)
    assert one[0] == other[1] != other[0]
    assert one[2] == other[2]
