"""The state of a join outside of its process."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin.arrow.encodings import Orders
from adjoin.errors import CorruptionError, OptionError, SchemaError
from adjoin.kernels.hashing import hash_bytes
from adjoin.streamjoin.disk.blocks import Blocks
from adjoin.streamjoin.memory.tuples import Tuples

STATE = "state"
_MAGIC = b"adjoin snapshot 4\n"
_CHECKSUM_BYTES = 16


def dump(
    facts: dict[str, Any],
    names: Sequence[str],
    inputs: Sequence[Tuples],
    blocks: Sequence[Blocks],
    orders: Orders,
    rows: int,
) -> Iterator[tuple[str, bytes]]:
    """All state as named values, none larger than about a block; the last one has the checksums of all.

    A block changes once at most: when its tuples have been merged into others, there is only its entry left.
    """
    checksums: dict[str, str] = {}
    for name, value in _values(names, inputs, blocks, orders, rows):
        checksums[name] = _checksum(value)
        yield name, value
    hands = [[index.hand for index in tuples.indexes] for tuples in inputs]
    paths = [path for path, _ in orders.dump()]
    body = json.dumps({"values": checksums, "hands": hands, "orders": paths, **facts}).encode()
    yield STATE, _MAGIC + _checksum(body).encode() + body


def _values(
    names: Sequence[str],
    inputs: Sequence[Tuples],
    blocks: Sequence[Blocks],
    orders: Orders,
    rows: int,
) -> Iterator[tuple[str, bytes]]:
    for side, tuples, written in zip(names, inputs, blocks, strict=True):
        for number in range(len(written)):
            yield f"{side}/block/{number:09d}", written.dump(number)
        for number, batch in enumerate(tuples.dump(rows)):
            yield f"{side}/tuples/{number:09d}", batch.serialize().to_pybytes()
    for number, (_, order) in enumerate(orders.dump()):
        sink = pa.BufferOutputStream()
        batch = pa.record_batch([order], names=["order"])
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield f"orders/{number:09d}", sink.getvalue().to_pybytes()


def _checksum(value: bytes) -> str:
    return f"{int(hash_bytes(np.frombuffer(value, np.uint8), 0, len(value))):016x}"


class Snapshot:
    """What `dump` gave, in any order of names, checked to be whole.

    Args:
        values: The named values; more than these are ignored.

    Raises:
        CorruptionError: A value is missing, or is not the one that was written.

    Attributes:
        facts: Those given to `dump`.
    """

    def __init__(self, values: Iterable[tuple[str, bytes]]) -> None:
        found = _named(values)
        self.facts = _facts(found.get(STATE))
        self._checksums: dict[str, str] = self.facts["values"]
        self._found = {name: found[name] for name in self._checksums if name in found}
        for name, checksum in self._checksums.items():
            if name not in self._found:
                raise CorruptionError(f"the snapshot has no value {name!r}; take an older snapshot")
            if _checksum(self._found[name]) != checksum:
                raise CorruptionError(
                    f"the value {name!r} is damaged, or of another snapshot; take an older snapshot"
                )

    def check(self, identity: Mapping[str, Any]) -> None:
        """Raise an error that names the difference if it is of another join."""
        saved = self.facts["join"]
        for fact in (*identity, *(fact for fact in saved if fact not in identity)):
            here, there = identity.get(fact), saved.get(fact)
            if json.loads(json.dumps(here)) != there:
                kind = SchemaError if "schema" in fact else OptionError
                raise kind(
                    f"this is a snapshot of another join: {fact} was {_shown(there)} and is {_shown(here)} "
                    "here; make the join with the same arguments"
                )

    def load(
        self, names: Sequence[str], inputs: Sequence[Tuples], blocks: Sequence[Blocks], orders: Orders
    ) -> None:
        """Put tuples and blocks where they belong."""
        for number, (side, tuples, written) in enumerate(zip(names, inputs, blocks, strict=True)):
            for value in self._all(f"{side}/block/"):
                written.load(value)
            for value in self._all(f"{side}/tuples/"):
                tuples.load(pa.ipc.read_record_batch(pa.py_buffer(value), tuples.dumped_schema))
            for index, hand in zip(tuples.indexes, self.facts["hands"][number], strict=True):
                index.hand = hand
        for path, value in zip(self.facts["orders"], self._all("orders/"), strict=True):
            with pa.ipc.open_stream(value) as stream:
                orders.load(tuple(path), stream.read_all()["order"].combine_chunks())

    def _all(self, prefix: str) -> Iterator[bytes]:
        for name in sorted(name for name in self._found if name.startswith(prefix)):
            yield self._found.pop(name)


def _named(values: Iterable[tuple[str, bytes]]) -> dict[str, bytes]:
    try:
        found = dict(values)
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"restore takes the pairs of names and bytes that snapshot gave ({error})"
        ) from error
    for name, value in found.items():
        if not isinstance(name, str) or not isinstance(value, bytes | bytearray | memoryview):
            raise OptionError(
                f"restore takes names and bytes; {name!r} has a value of {type(value).__name__}"
            )
    return {name: bytes(value) for name, value in found.items()}


def _facts(state: bytes | None) -> dict[str, Any]:
    if state is None:
        raise CorruptionError(f"the snapshot has no value {STATE!r}; take an older snapshot")
    if not state.startswith(_MAGIC):
        raise CorruptionError(
            f"the value {STATE!r} of the snapshot is damaged, or another version of adjoin wrote it"
        )
    begin = len(_MAGIC) + _CHECKSUM_BYTES
    if state[len(_MAGIC) : begin] != _checksum(state[begin:]).encode():
        raise CorruptionError(f"the value {STATE!r} of the snapshot is damaged; take an older snapshot")
    facts: dict[str, Any] = json.loads(state[begin:])
    return facts


def _shown(fact: Any) -> str:
    return f"{fact!r:.300}"
