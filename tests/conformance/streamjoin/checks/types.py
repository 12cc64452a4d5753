"""Keys of every type match, and columns of every type come back unchanged."""

from unittest.mock import patch

import numpy as np
import pyarrow as pa

from adjoin.keys.codec import KeyCodec
from tests.conformance.registry import STREAM_JOIN
from tests.conformance.streamjoin import workloads
from tests.conformance.streamjoin.checks.exact import MEMORY
from tests.conformance.streamjoin.subjects import StreamJoinSubject, assert_exact
from tests.conformance.streamjoin.workloads import Arrival, rows_of, two
from tests.conformance.values import KEY_TYPES, MEASURABLE_KEYS, ORDERED_KEYS, WIDENED, random_column
from tests.oracle import Predicate


@STREAM_JOIN.check(key=KEY_TYPES, order=("in turn", "right first"), over_types=True)
def check_key_type(subject: StreamJoinSubject, key: str, order: str) -> None:
    held = workloads.of_key_type(key)
    assert_exact(subject, held, held.script(37, order))


@STREAM_JOIN.check(needs=["range"], key=MEASURABLE_KEYS, over_types=True)
def check_within_type(subject: StreamJoinSubject, key: str) -> None:
    held = workloads.of_within_type(key)
    assert_exact(subject, held, held.script(37))


@STREAM_JOIN.check(needs=["range"], key=ORDERED_KEYS, over_types=True)
def check_between_type(subject: StreamJoinSubject, key: str) -> None:
    held = workloads.of_between_type(key)
    assert_exact(subject, held, held.script(7))


@STREAM_JOIN.check(key=WIDENED, over_types=True)
def check_widened_key(subject: StreamJoinSubject, key: str) -> None:
    """The left has a narrower type than the right."""
    of_left, of_right = WIDENED[key]
    rng = np.random.default_rng(9)
    plain = of_left.value_type if pa.types.is_dictionary(of_left) else of_left
    narrow = random_column(plain, 240, rng, null_share=0.0)
    wide = pa.concat_arrays([narrow.slice(0, 160).cast(of_right), random_column(of_right, 80, rng, 0.0)])
    left = rows_of({"k": narrow if plain == of_left else narrow.dictionary_encode()}, "l", 0)
    held = two(key, (left, rows_of({"k": wide}, "r", 1)), Predicate("k"), spills=False)
    assert_exact(subject, held, held.script(31))


@STREAM_JOIN.check(
    hash_bits=(1, 4), key=("string", "int32+string", "decimal_38", "float64+binary"), over_types=True
)
def check_hash_collisions(subject: StreamJoinSubject, hash_bits: int, key: str) -> None:
    """Different keys with equal hashes do not match."""
    held = workloads.of_key_type(key)
    real = KeyCodec.of

    def short(*arguments: object, **options: object) -> KeyCodec:
        return real(*arguments, **{**options, "hash_bits": hash_bits})  # type: ignore[arg-type]

    with patch.object(KeyCodec, "of", short):
        assert_exact(subject, held)


@STREAM_JOIN.check(batch_rows=(13, 120), where=MEMORY)
def check_payload_types(subject: StreamJoinSubject, batch_rows: int, where: str) -> None:
    held = workloads.of_payload_types()
    assert_exact(subject, held, held.script(batch_rows), **MEMORY[where])


@STREAM_JOIN.check()
def check_float_rules(subject: StreamJoinSubject) -> None:
    """NaN equals NaN, 0.0 equals -0.0, and each side keeps the sign it had."""
    nan, inf = float("nan"), float("inf")
    left = rows_of({"k": pa.array([0.0, -0.0, nan, -nan, inf, -inf, 2.0, None] * 40)}, "l", 0)
    right = rows_of({"k": pa.array([nan, -0.0, 1.0, inf, -inf, None])}, "r", 1)
    assert_exact(subject, two("floats", (left, right), Predicate("k"), spills=False))


@STREAM_JOIN.check()
def check_dictionaries(subject: StreamJoinSubject) -> None:
    words = pa.array(["red", "green", None, "blue"] * 75).dictionary_encode()
    left = rows_of({"k": np.arange(300) % 200, "color": words}, "l", 0)
    right = rows_of({"k": np.arange(0, 600, 2) % 200, "color": words}, "r", 1)
    held = two("dictionaries", (left, right), Predicate("k"))
    assert_exact(subject, held, held.script(17))


@STREAM_JOIN.check()
def check_changing_dictionaries(subject: StreamJoinSubject) -> None:
    """Every batch has its own dictionary."""
    script: list[Arrival] = []
    sides: dict[str, list[pa.Table]] = {"left": [], "right": []}
    for start in range(0, 300, 30):
        words = pa.array([f"word {number}" for number in range(start, start + 30)]).dictionary_encode()
        for prefix, side in (("l", "left"), ("r", "right")):
            part = rows_of({"k": np.arange(start, start + 30) % 100, "word": words}, prefix, start)
            sides[side].append(part)
            script.append((side, part.to_batches()[0]))
    left, right = (pa.concat_tables(parts).unify_dictionaries() for parts in sides.values())
    assert_exact(subject, two("changing dictionaries", (left, right), Predicate("k")), script)


@STREAM_JOIN.check()
def check_extension_types(subject: StreamJoinSubject) -> None:
    """An extension type on both sides."""
    storage = pa.array([number.to_bytes(16, "big") for number in range(300)], pa.binary(16))
    ids = pa.ExtensionArray.from_storage(pa.uuid(), storage)
    left = rows_of({"k": np.arange(300), "id": ids}, "l", 0)
    right = rows_of({"k": np.arange(0, 600, 2), "id": ids}, "r", 1)
    assert_exact(subject, two("extension types", (left, right), Predicate("k")))


@STREAM_JOIN.check()
def check_views(subject: StreamJoinSubject) -> None:
    words = pa.array([None if i % 5 == 0 else "w" * (i % 30) for i in range(300)], pa.string_view())
    left = rows_of({"k": np.arange(300), "word": words}, "l", 0)
    right = rows_of({"k": np.arange(0, 600, 2), "word": words}, "r", 1)
    assert_exact(subject, two("views", (left, right), Predicate("k")))


@STREAM_JOIN.check(offset=(1, 3, 8, 64))
def check_slices(subject: StreamJoinSubject, offset: int) -> None:
    """Batches that are slices of larger buffers, also at bit offsets."""
    sides = [table.combine_chunks().slice(offset) for table in workloads.of_payload_types().inputs.values()]
    held = two(f"slice at {offset}", sides, Predicate("k"), spills=False)
    assert_exact(subject, held, held.script(31))
