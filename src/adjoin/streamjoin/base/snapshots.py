"""Snapshots: the state of a join as named values that outlive its process."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin.errors import CorruptionError, OptionError, SchemaError
from adjoin.kernels.hashing import hash_bytes
from adjoin.streamjoin.base.parts import JoinSpec
from adjoin.streamjoin.base.storage import Storage

STATE = "state"
_MAGIC = b"adjoin snapshot 4\n"
_CHECKSUM_BYTES = 16


def identity(operator: str, spec: JoinSpec, storage: Storage, described: dict[str, Any]) -> dict[str, Any]:
    """What must be the same for an operator to continue from a snapshot."""
    return {
        "the operator": operator,
        "the list of inputs": list(spec.names),
        **{
            f"the schema of {name}": _columns(schema)
            for name, schema in zip(spec.names, spec.schemas, strict=True)
        },
        **described,
        "the schema of results": _columns(spec.schema),
        "memory": storage.budget.total_bytes,
        "block_bytes": storage.sizes.slot_bytes,
        "max_outer": storage.sizes.max_outer,
    }


def _columns(schema: pa.Schema) -> list[str]:
    return [f"{field.name}: {field.type}{'' if field.nullable else ' not null'}" for field in schema]


def dump(facts: dict[str, Any], spec: JoinSpec, storage: Storage) -> Iterator[tuple[str, bytes]]:
    """The whole state as named values, none much larger than a block; the last one has all checksums.

    A block changes at most once: when its tuples have been merged into others, only its entry is left.
    """
    checksums: dict[str, str] = {}
    for name, value in _values(spec, storage):
        checksums[name] = _checksum(value)
        yield name, value
    hands = [[index.hand for index in tuples.indexes] for tuples in storage.inputs]
    paths = [path for path, _ in spec.orders.dump()]
    body = json.dumps({"values": checksums, "hands": hands, "orders": paths, **facts}).encode()
    yield STATE, _MAGIC + _checksum(body).encode() + body


def _values(spec: JoinSpec, storage: Storage) -> Iterator[tuple[str, bytes]]:
    for at, (side, tuples) in enumerate(zip(spec.names, storage.inputs, strict=True)):
        for number, value in enumerate(storage.dump_spilled(at)):
            yield f"{side}/block/{number:09d}", value
        for number, batch in enumerate(tuples.dump(storage.sizes.piece_rows)):
            yield f"{side}/tuples/{number:09d}", batch.serialize().to_pybytes()
    for number, (_, order) in enumerate(spec.orders.dump()):
        sink = pa.BufferOutputStream()
        batch = pa.record_batch([order], names=["order"])
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield f"orders/{number:09d}", sink.getvalue().to_pybytes()


def _checksum(value: bytes) -> str:
    return f"{int(hash_bytes(np.frombuffer(value, np.uint8), 0, len(value))):016x}"


class Snapshot:
    """The values that `dump` returned, in any order, checked to be complete.

    Args:
        values: The named values; others are ignored.

    Raises:
        CorruptionError: A value is missing, or is not the one that was written.

    Attributes:
        facts: The facts that were given to `dump`.
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
        """Raise an error that names the difference if the snapshot is of another join."""
        saved = self.facts["join"]
        for fact in (*identity, *(fact for fact in saved if fact not in identity)):
            here, there = identity.get(fact), saved.get(fact)
            if json.loads(json.dumps(here)) != there:
                kind = SchemaError if "schema" in fact else OptionError
                raise kind(
                    f"this is a snapshot of another join: {fact} was {_shown(there)} and is {_shown(here)} "
                    "here; make the join with the same arguments"
                )

    def load(self, spec: JoinSpec, storage: Storage) -> None:
        """Restore tuples and blocks."""
        for number, (side, tuples) in enumerate(zip(spec.names, storage.inputs, strict=True)):
            for value in self._all(f"{side}/block/"):
                storage.load_spilled(number, value)
            for value in self._all(f"{side}/tuples/"):
                tuples.load(pa.ipc.read_record_batch(pa.py_buffer(value), tuples.dumped_schema))
            for index, hand in zip(tuples.indexes, self.facts["hands"][number], strict=True):
                index.hand = hand
        for path, value in zip(self.facts["orders"], self._all("orders/"), strict=True):
            with pa.ipc.open_stream(value) as stream:
                spec.orders.load(tuple(path), stream.read_all()["order"].combine_chunks())

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
