"""Random numbers from a seed and a purpose."""

import hashlib

import numpy as np
from numpy.typing import NDArray

from workloads.sampling import fill_units

State = NDArray[np.uint64]
_PORTION = 4096


def state_of(seed: int, purpose: str) -> State:
    """The start of a sequence of random words, a different one for every purpose.

    Generators with the same seed must not draw the same words, or keys would correlate with arrival times.

    >>> bool(state_of(1, "keys") == state_of(1, "times"))
    False
    """
    digest = hashlib.blake2b(f"{purpose} {seed}".encode(), digest_size=8).digest()
    return np.array([int.from_bytes(digest, "little")], np.uint64)


def units(state: State, count: int) -> NDArray[np.float64]:
    """The next `count` numbers, uniform on [0, 1).

    >>> bool(units(state_of(1, "keys"), 1000).max() < 1)
    True
    """
    numbers = np.empty(count)
    fill_units(state, numbers)
    return numbers


def normals(state: State, count: int) -> NDArray[np.float64]:
    """The next `count` numbers, normal with mean 0 and deviation 1 (Box and Muller).

    >>> round(float(normals(state_of(1, "widths"), 100_000).std()), 2)
    1.0
    """
    radius = np.sqrt(-2 * np.log1p(-units(state, count)))
    return radius * np.cos(2 * np.pi * units(state, count))


class Normals:
    """Numbers like those of `normals`, the same whatever the batch sizes.

    >>> first, second = Normals(1, "steps"), Normals(1, "steps")
    >>> bool((np.concatenate([first.draw(3), first.draw(9000)]) == second.draw(9003)).all())
    True
    """

    def __init__(self, seed: int, purpose: str) -> None:
        self._state = state_of(seed, purpose)
        self._spare: NDArray[np.float64] = np.empty(0)

    def draw(self, count: int) -> NDArray[np.float64]:
        """The next `count` numbers."""
        missing = max(0, count - len(self._spare))
        portions = [normals(self._state, _PORTION) for _ in range(-(-missing // _PORTION))]
        numbers = np.concatenate([self._spare, *portions])
        self._spare = numbers[count:]
        return numbers[:count]
