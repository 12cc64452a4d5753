import numpy as np
import pyarrow as pa
import pytest

from adjoin import OptionError
from workloads import Records, Zipf


@pytest.mark.parametrize("row_bytes", [17, 20, 24, 120, 128, 200])
def test_rows_have_exactly_the_requested_size(row_bytes: int) -> None:
    batch = Records(row_bytes).batch(np.arange(1000))
    batch.validate(full=True)
    assert batch.nbytes == 1000 * row_bytes


def test_payloads_are_random_bytes_and_no_two_are_equal() -> None:
    payload = Records(40, seed=1).batch(np.zeros(20_000, np.int64))["payload"]
    assert len(payload.unique()) == 20_000
    assert np.bincount(np.frombuffer(payload.buffers()[1], np.uint8), minlength=256) == pytest.approx(
        20_000 * 24 / 256, rel=0.15
    )


@pytest.mark.parametrize("row_bytes", [21, 128])
def test_a_seed_determines_the_rows_whatever_the_batch_sizes(row_bytes: int) -> None:
    def read(seed: int, batch_rows: int) -> pa.Table:
        return Records(row_bytes, seed=seed).reader(Zipf(50).draw, 1000, batch_rows).read_all()

    whole = read(3, 1000)
    assert whole["row"].to_pylist() == list(range(1000))
    for batch_rows in (1, 7, 999, 5000):
        assert read(3, batch_rows).equals(whole)
    assert not read(4, 1000)["payload"].equals(whole["payload"])


def test_batches_have_the_requested_rows() -> None:
    batches = list(Records(20).reader(Zipf(50).draw, 10, batch_rows=4))
    assert [batch.num_rows for batch in batches] == [4, 4, 2]


def test_the_key_column_has_the_given_name() -> None:
    assert Records(20, key="product").schema.names == ["product", "row", "payload"]


def test_invalid_options_are_named() -> None:
    with pytest.raises(OptionError, match="row_bytes=16"):
        Records(16)
    with pytest.raises(OptionError, match="batch_rows=0"):
        Records(20).reader(Zipf(50).draw, 10, batch_rows=0)
    with pytest.raises(OptionError, match="rows=-1"):
        Records(20).reader(Zipf(50).draw, -1)
