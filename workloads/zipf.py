"""Skewed keys."""

import math
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from adjoin.errors import OptionError
from workloads.sampling import fill_words, fill_zipf, fill_zipf_continuous, permute

Form = Literal["discrete", "continuous"]
Placement = Literal["noperm", "random"]

_MOST_KEYS = 1 << 40  # beyond that, rounding in float64 hides the steps between ranks
_ROUNDS = 6


class Zipf:
    """Keys 0..n-1, of which the r-th most frequent has a share proportional to r**-exponent.

    How it works:
        A rank is drawn by rejection-inversion (discrete) or by inverting the integral (continuous), then
        placed: rank r is key r itself, or its image under a seeded permutation. Nothing grows with n.

    Args:
        n: Number of distinct keys, 1 to 2**40.
        exponent: The skew, at least 0 (uniform).
        form: "discrete" is Zipf's law itself; "continuous" is the form of the papers, with a lighter head
            (n = 100,000, exponent 1: the top key has 6.0 % instead of 8.3 %).
        placement: "noperm" makes key 0 the most frequent, key 1 the next; "random" scatters them.
        seed: The same seed gives the same keys, whatever the batch sizes.

    Example:
        >>> zipf = Zipf(1000, exponent=1.0, seed=7)
        >>> keys = zipf.draw(100_000)
        >>> round(float((keys == 0).mean()), 2)  # 1 / H(1000) = 0.134
        0.13
        >>> bool((Zipf(1000, seed=7).draw(100_000) == keys).all())
        True

    Cost:
        Time O(rows), about 20 million rows per second on one core; memory O(1) in addition to the result.

    Reference:
        W. Hörmann, G. Derflinger, ACM TOMACS 6(3), 1996 (rejection-inversion).
    """

    def __init__(
        self,
        n: int,
        exponent: float = 1.0,
        *,
        form: Form = "discrete",
        placement: Placement = "noperm",
        seed: int = 0,
    ) -> None:
        _check(n, exponent, form, placement)
        self.n = n
        self.exponent = float(exponent)
        self._fill = fill_zipf if form == "discrete" else fill_zipf_continuous
        self._state = np.array([seed & 0xFFFFFFFFFFFFFFFF], np.uint64)
        self._round_keys = np.empty(_ROUNDS if placement == "random" else 0, np.uint64)
        fill_words(self._state, self._round_keys)

    def draw(self, rows: int) -> NDArray[np.int64]:
        """The next `rows` keys.

        >>> Zipf(5, exponent=0, seed=1).draw(1000).max()
        np.int64(4)
        """
        ranks = np.empty(rows, np.int64)
        self._fill(self._state, self.n, self.exponent, ranks)
        return self._place(ranks)

    def key_of(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """The keys of these ranks, 0 being the most frequent.

        >>> Zipf(100, placement="noperm").key_of(np.array([0, 99])).tolist()
        [0, 99]
        >>> sorted(Zipf(4, placement="random").key_of(np.arange(4)).tolist())
        [0, 1, 2, 3]
        """
        if len(ranks) and not 0 <= ranks.min() <= ranks.max() < self.n:
            raise OptionError(f"ranks from {ranks.min()} to {ranks.max()}: they must be in [0, {self.n})")
        return self._place(ranks.astype(np.int64))

    def _place(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        if len(self._round_keys):
            permute(ranks, self.n, self._round_keys)
        return ranks


def _check(n: int, exponent: float, form: str, placement: str) -> None:
    if not 1 <= n <= _MOST_KEYS:
        raise OptionError(f"n={n}: the number of keys must be in [1, 2**40]")
    if not (math.isfinite(exponent) and exponent >= 0):
        raise OptionError(f"exponent={exponent}: it must be at least 0 (uniform)")
    if form not in get_args(Form):
        raise OptionError(f"form={form!r}: choose one of {get_args(Form)}")
    if placement not in get_args(Placement):
        raise OptionError(f"placement={placement!r}: choose one of {get_args(Placement)}")
