"""Keys of every type match, and columns of every type come back unchanged."""

import numpy as np
import pyarrow as pa

from tests.conformance.batches import as_batch, numbered
from tests.conformance.registry import SEMI_STREAM
from tests.conformance.semistream import workloads
from tests.conformance.semistream.snapshots import colliding, snapshot
from tests.conformance.semistream.subjects import SemiStreamSubject, assert_exact
from tests.conformance.semistream.workloads import HOWS, Workload
from tests.conformance.values import KEY_TYPES, MEASURABLE_KEYS, ORDERED_KEYS, WIDENED, random_column, strings
from tests.oracle import Predicate


@SEMI_STREAM.check(how=HOWS, key=KEY_TYPES, over_types=True)
def check_key_type(subject: SemiStreamSubject, how: str, key: str) -> None:
    workload = workloads.of_key_type(key)
    assert_exact(subject, workload, workload.batches(37), how=how)


@SEMI_STREAM.check(needs=["range"], how=("left", "semi"), key=MEASURABLE_KEYS, over_types=True)
def check_within_type(subject: SemiStreamSubject, how: str, key: str) -> None:
    workload = workloads.of_range_type(key)
    assert_exact(subject, workload, workload.batches(37), how=how)


@SEMI_STREAM.check(needs=["range"], how=("left",), key=ORDERED_KEYS, over_types=True)
def check_between_type(subject: SemiStreamSubject, how: str, key: str) -> None:
    workload = workloads.of_between_type(key)
    assert_exact(subject, workload, workload.batches(7), how=how)


@SEMI_STREAM.check(how=("left", "anti"))
def check_float_rules(subject: SemiStreamSubject, how: str) -> None:
    """NaN equals NaN, 0.0 equals -0.0, and each side keeps the sign it had."""
    nan, inf = float("nan"), float("inf")
    held = snapshot(pa.table({"k": [nan, -0.0, 1.0, inf, -inf], "n": [1, 2, 3, 4, 5]}), "k")
    stream = numbered(pa.table({"k": pa.array([0.0, -0.0, nan, -nan, inf, -inf, 2.0, None])}))
    assert_exact(subject, Workload("floats", held, stream, Predicate("k")), how=how)


@SEMI_STREAM.check(key=WIDENED, over_types=True)
def check_widened_key(subject: SemiStreamSubject, key: str) -> None:
    of_stream, of_master = WIDENED[key]
    rng = np.random.default_rng(9)
    plain = of_stream.value_type if pa.types.is_dictionary(of_stream) else of_stream
    narrow = random_column(plain, 120, rng, null_share=0.0)
    widened = narrow.slice(0, 80).cast(of_master)
    rest = random_column(of_master, 100, rng, null_share=0.0)
    table = pa.table({"k": pa.concat_arrays([widened, rest]), "text": strings(180, rng)})
    stream = numbered(pa.table({"k": narrow if plain == of_stream else narrow.dictionary_encode()}))
    workload = Workload(key, snapshot(table, "k"), stream, Predicate("k"))
    assert_exact(subject, workload, workload.batches(31), how="left")


@SEMI_STREAM.check(
    how=HOWS,
    hash_bits=(1, 4),
    key=("string", "int32+string", "decimal_38", "float64+binary"),
    over_types=True,
)
def check_hash_collisions(subject: SemiStreamSubject, how: str, hash_bits: int, key: str) -> None:
    """Different keys with equal hashes do not match."""
    base = workloads.of_key_type(key)
    held = colliding(base.snapshot, hash_bits)
    assert_exact(subject, Workload(f"collisions {key}", held, base.stream, base.predicate), how=how)


@SEMI_STREAM.check(how=HOWS, batch_rows=(13, 120))
def check_payload_types(subject: SemiStreamSubject, how: str, batch_rows: int) -> None:
    workload = workloads.of_payload_types()
    memory = subject.all_in_memory(workload.snapshot)
    assert_exact(subject, workload, workload.batches(batch_rows), how=how, memory=memory)


@SEMI_STREAM.check(how=HOWS, batch_rows=(13, 120))
def check_payload_types_least(subject: SemiStreamSubject, how: str, batch_rows: int) -> None:
    workload = workloads.of_payload_types()
    memory = subject.least(workload.snapshot)
    assert_exact(subject, workload, workload.batches(batch_rows), how=how, memory=memory)


@SEMI_STREAM.check(how=("left", "anti"))
def check_dictionaries(subject: SemiStreamSubject, how: str) -> None:
    """Dictionary columns of the stream keep their encoding, those of the master are decoded."""
    words = pa.array(["red", "green", None, "blue"] * 60).dictionary_encode()
    held = snapshot(pa.table({"k": pa.array(np.arange(240)), "colour": words}), "k")
    stream = numbered(pa.table({"k": pa.array(np.arange(0, 480, 2)), "colour": words, "tone": words}))
    workload = Workload("dictionaries", held, stream, Predicate("k"))
    assert_exact(subject, workload, workload.batches(17), how=how)


@SEMI_STREAM.check(how=("left", "semi"))
def check_extension_types(subject: SemiStreamSubject, how: str) -> None:
    """An extension type on both sides."""
    ids = pa.ExtensionArray.from_storage(
        pa.uuid(), pa.array([bytes([i]) * 16 for i in range(120)], pa.binary(16))
    )
    held = snapshot(pa.table({"k": pa.array(np.arange(120)), "id": ids}), "k")
    stream = numbered(pa.table({"k": pa.array(np.arange(0, 240, 2)), "id": ids}))
    assert_exact(subject, Workload("uuid", held, stream, Predicate("k")), how=how)


@SEMI_STREAM.check(how=("left", "anti"))
def check_changing_dictionaries(subject: SemiStreamSubject, how: str) -> None:
    """Every batch has its own dictionary."""
    held = workloads.products(np.arange(100))
    parts = []
    for start in range(0, 90, 30):
        words = pa.array([f"word {i}" for i in range(start, start + 30)]).dictionary_encode()
        parts.append(pa.table({"k": pa.array(np.arange(start, start + 30) * 2), "word": words}))
    stream = numbered(pa.concat_tables(parts))
    batches = [as_batch(stream.slice(start, 30)) for start in range(0, 90, 30)]
    assert_exact(subject, Workload("changing dictionaries", held, stream, Predicate("k")), batches, how=how)


@SEMI_STREAM.check(how=("inner", "left"))
def check_master_encodings(subject: SemiStreamSubject, how: str) -> None:
    """View and run-end encoded columns of the master's source are decoded."""
    text = [f"{i:040}" for i in range(200)]
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([50, 120, 200], pa.int32()), pa.array(["a", None, "c"]))
    source = pa.table({"k": pa.array(np.arange(200)), "v": pa.array(text, pa.string_view()), "r": runs})
    held = snapshot(source, "k")
    assert_exact(
        subject, Workload("encodings", held, workloads.sales(np.arange(0, 400, 3)), Predicate("k")), how=how
    )


@SEMI_STREAM.check(how=("inner", "anti"))
def check_stream_views(subject: SemiStreamSubject, how: str) -> None:
    words = pa.array([None if i % 5 == 0 else "w" * (i % 30) for i in range(90)], pa.string_view())
    stream = numbered(pa.table({"k": pa.array(np.arange(90) * 2), "word": words}))
    assert_exact(
        subject, Workload("views", workloads.products(np.arange(100)), stream, Predicate("k")), how=how
    )


@SEMI_STREAM.check(offset=(1, 3, 8, 64))
def check_slices(subject: SemiStreamSubject, offset: int) -> None:
    """Batches that are slices of larger buffers, also at bit offsets."""
    base = workloads.of_payload_types()
    stream = base.stream.combine_chunks().slice(offset, 50)
    workload = Workload(f"slice at {offset}", base.snapshot, stream, base.predicate)
    assert_exact(subject, workload, workload.batches(11), how="left")


@SEMI_STREAM.check(how=("left", "semi"), least=(True, False))
def check_large_master_rows(subject: SemiStreamSubject, how: str, least: bool) -> None:
    """Rows larger than a page, alone and among small ones, with repeated keys."""
    sizes = [10, 100_000, 10, 10, 5_000, 9_000, 20_000, 1] * 6
    keys = np.repeat(np.arange(16), 3)
    held = snapshot(pa.table({"k": pa.array(keys), "text": ["x" * size for size in sizes]}), "k")
    workload = Workload("large rows", held, workloads.sales(np.arange(60) % 20), Predicate("k"))
    memory = subject.least(held) if least else subject.all_in_memory(held)
    assert_exact(subject, workload, how=how, memory=memory)
