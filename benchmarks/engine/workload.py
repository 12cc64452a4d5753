"""The data that every contender gets: a master and streams of its keys.

Every column is a function of the key, so any output row can be checked without a second copy of the
master. Existing keys are even; odd keys never exist.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

Array: TypeAlias = np.ndarray[Any, Any]

TEXT_BYTES = 96
ROW_BYTES = 8 + 8 + 8 + TEXT_BYTES
SCHEMA = pa.schema(
    [
        pa.field("key", pa.int64(), nullable=False),
        pa.field("surrogate", pa.int64()),
        pa.field("price", pa.float64()),
        pa.field("text", pa.string()),
    ]
)
STREAM_SCHEMA = pa.schema([pa.field("key", pa.int64())])

_WORD_BYTES = 8
_WORDS_PER_TEXT = TEXT_BYTES // _WORD_BYTES


def mix(values: Array) -> Array:
    """A 64-bit hash of every value (the finalizer of SplitMix64)."""
    z = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _vocabulary() -> Array:
    """256 pronounceable words of 7 letters and a space, each as one uint64."""
    consonants, vowels = "bcdfglmnprstvz", "aeiou"
    words = bytearray()
    for seed in mix(np.arange(256, dtype=np.int64)).tolist():
        word, number = "", seed
        for position in range(_WORD_BYTES - 1):
            letters = vowels if position % 2 else consonants
            number, letter = divmod(number, len(letters))
            word += letters[letter]
        words += (word + " ").encode()
    return np.frombuffer(bytes(words), dtype=np.uint64)


_VOCABULARY = _vocabulary()


def surrogate_of(keys: Array) -> Array:
    """Surrogate keys."""
    return (mix(keys) >> np.uint64(1)).astype(np.int64)


def price_of(keys: Array) -> Array:
    """Prices with two decimals."""
    cents: Array = mix(keys ^ 0x5555) % np.uint64(1_000_000)
    return cents.astype(np.float64) / 100


def text_of(keys: Array) -> Array:
    """Strings as an array of shape (rows, words), one uint64 per word."""
    low = mix(keys + 1).view(np.uint8).reshape(len(keys), 8)
    high = mix(keys + 2).view(np.uint8).reshape(len(keys), 8)[:, : _WORDS_PER_TEXT - 8]
    words: Array = _VOCABULARY[np.concatenate([low, high], axis=1)]
    return words


def text_array(words: Array) -> pa.StringArray:
    """An Arrow string column over strings of fixed width, without a copy if they are contiguous."""
    rows = len(words)
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(TEXT_BYTES)
    data = np.ascontiguousarray(words)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(data))


def rows_of(keys: Array) -> pa.RecordBatch:
    """The master's rows with these keys."""
    columns = [
        pa.array(keys),
        pa.array(surrogate_of(keys)),
        pa.array(price_of(keys)),
        text_array(text_of(keys)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def master_batches(master_rows: int, batch_rows: int = 100_000) -> Iterator[pa.RecordBatch]:
    """The whole master in key order."""
    for start in range(0, master_rows, batch_rows):
        yield rows_of(2 * np.arange(start, min(start + batch_rows, master_rows), dtype=np.int64))


def zipf_keys(master_rows: int, rows: int, seed: int) -> Array:
    """Keys of a stream: rank r has weight 1/r; a random permutation spreads ranks over the master."""
    random = np.random.default_rng(seed)
    spread = random.permutation(master_rows)
    weights = np.cumsum(1.0 / np.arange(1, master_rows + 1))
    ranks = np.searchsorted(weights, random.random(rows) * weights[-1], side="right")
    places: Array = spread[np.minimum(ranks, master_rows - 1)]
    return 2 * places.astype(np.int64)


def mostly_absent_keys(keys: Array, master_rows: int, seed: int, absent: float = 0.9) -> Array:
    """The same stream with this share of its keys replaced by keys that do not exist.

    Absent keys are uniform over the whole key range, which is the hardest case: no page is hot.
    """
    random = np.random.default_rng([seed, 1])
    odd = 2 * random.integers(0, master_rows, len(keys), dtype=np.int64) + 1
    return np.where(random.random(len(keys)) < absent, odd, keys)


def exists(keys: Array) -> Array:
    """Which of the keys are in the master."""
    even: Array = keys % 2 == 0
    return even
