import numpy as np
import pytest

from workloads.seeds import normals, state_of, units


def test_every_purpose_has_its_own_numbers() -> None:
    one, two = (units(state_of(1, purpose), 10_000) for purpose in ("keys", "times"))
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.05


@pytest.mark.parametrize("seed", [0, -1, 2**70])
def test_any_integer_is_a_seed(seed: int) -> None:
    numbers = units(state_of(seed, "keys"), 10_000)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert numbers.mean() == pytest.approx(0.5, abs=0.02)
    assert (numbers != units(state_of(seed + 1, "keys"), 10_000)).all()


def test_a_seed_gives_the_same_numbers_in_every_release() -> None:
    assert units(state_of(42, "keys"), 2) == pytest.approx([0.6237282218088788, 0.5065404075640199])


def test_normals_are_normally_distributed() -> None:
    numbers = normals(state_of(5, "heights"), 200_000)
    assert numbers.mean() == pytest.approx(0, abs=0.01)
    for deviations, share in [(1, 0.6827), (2, 0.9545), (3, 0.9973)]:
        assert (np.abs(numbers) < deviations).mean() == pytest.approx(share, abs=0.004)
