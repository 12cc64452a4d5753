"""The state of a join outside of its process."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from adjoin.errors import AdjoinError, CorruptionError
from adjoin.streamjoin.blocks import Blocks
from adjoin.streamjoin.tuples import Tuples

STATE = "state"
_FORMAT = 3


def dump(
    facts: dict[str, Any],
    names: Sequence[str],
    inputs: Sequence[Tuples],
    blocks: Sequence[Blocks],
    rows: int,
) -> Iterator[tuple[str, bytes]]:
    """All state as named values, none larger than about a block.

    A block changes once at most: when its tuples have been merged into others, there is only its entry left.
    """
    for side, tuples, written in zip(names, inputs, blocks, strict=True):
        for number in range(len(written)):
            yield f"{side}/block/{number:09d}", written.dump(number)
        for number, batch in enumerate(tuples.dump(rows)):
            yield f"{side}/tuples/{number:09d}", batch.serialize().to_pybytes()
    hands = [[index.hand for index in tuples.indexes] for tuples in inputs]
    lengths = [len(written) for written in blocks]
    yield STATE, json.dumps({"format": _FORMAT, "hands": hands, "blocks": lengths, **facts}).encode()


def load(
    values: Iterable[tuple[str, bytes]],
    identity: Sequence[Any],
    inputs: Sequence[Tuples],
    blocks: Sequence[Blocks],
) -> dict[str, Any]:
    """Take in what `dump` gave, in any order of names, if it is of this join; returns the facts."""
    found = dict(values)
    facts: dict[str, Any] = json.loads(found.get(STATE, b"{}"))
    if facts.get("format") != _FORMAT:
        raise CorruptionError("the snapshot has no state, or one that another version of adjoin wrote")
    if facts["join"] != identity:
        raise AdjoinError(f"this is a snapshot of {facts['join']}, not of {identity}; make that join")
    names = identity[1]
    for number, (side, tuples, written) in enumerate(zip(names, inputs, blocks, strict=True)):
        for name in sorted(name for name in found if name.startswith(f"{side}/block/")):
            written.load(found.pop(name))
        if len(written) != facts["blocks"][number]:
            raise CorruptionError(f"the snapshot lacks blocks of the {side} input")
        for name in sorted(name for name in found if name.startswith(f"{side}/tuples/")):
            tuples.load(pa.ipc.read_record_batch(pa.py_buffer(found.pop(name)), tuples.dumped_schema))
        for index, hand in zip(tuples.indexes, facts["hands"][number], strict=True):
            index.hand = hand
    return facts
