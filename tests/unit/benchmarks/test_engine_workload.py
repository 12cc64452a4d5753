import numpy as np

from benchmarks.engine import workload


def test_a_row_has_120_bytes_and_every_key_once() -> None:
    batches = list(workload.master_batches(1_000, batch_rows=300))
    keys = np.concatenate([batch["key"].to_numpy() for batch in batches])
    assert (np.diff(keys) > 0).all()
    assert len(keys) == 1_000
    assert workload.exists(keys).all()
    assert workload.ROW_BYTES == 120
    assert {len(text) for batch in batches for text in batch["text"].to_pylist()} == {workload.TEXT_BYTES}


def test_the_same_seed_gives_the_same_stream() -> None:
    streams = [workload.zipf_keys(1_000, 5_000, seed) for seed in (1, 1, 2)]
    assert (streams[0] == streams[1]).all()
    assert (streams[0] != streams[2]).any()


def test_the_most_frequent_key_has_the_share_of_zipf_one() -> None:
    keys = workload.zipf_keys(1_000, 200_000, seed=3)
    shares = np.sort(np.unique(keys, return_counts=True)[1])[::-1] / len(keys)
    harmonic = (1 / np.arange(1, 1_001)).sum()
    np.testing.assert_allclose(shares[:3], 1 / harmonic / np.arange(1, 4), rtol=0.05)


def test_nine_tenths_of_the_keys_are_absent_and_the_rest_unchanged() -> None:
    keys = workload.zipf_keys(1_000, 50_000, seed=4)
    mostly = workload.mostly_absent_keys(keys, 1_000, seed=4)
    present = workload.exists(mostly)
    assert abs(present.mean() - 0.1) < 0.01
    assert (mostly[present] == keys[present]).all()
