"""Kernels for random keys: Zipf ranks, sorted keys, a permutation of [0, n) in constant memory, weights.

Random words come from SplitMix64, so a seed gives the same keys under every version of NumPy and numba.
"""

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_11, _27, _30, _31, _32 = (np.uint64(bits) for bits in (11, 27, 30, 31, 32))


@njit(cache=True, nogil=True)
def _mix(word: int) -> int:
    word = (word ^ (word >> _30)) * _MIX_1
    word = (word ^ (word >> _27)) * _MIX_2
    return word ^ (word >> _31)


@njit(cache=True, nogil=True)
def fill_words(state: Array, out: Array) -> None:
    """Random uint64 words; `state` is one uint64, which is advanced."""
    for i in range(len(out)):
        state[0] += _GOLDEN
        out[i] = _mix(state[0])


@njit(cache=True, nogil=True)
def _unit(state: Array) -> float:
    state[0] += _GOLDEN
    return float(_mix(state[0]) >> _11) * 2.0**-53


@njit(cache=True, nogil=True)
def fill_units(state: Array, out: Array) -> None:
    """Random numbers in [0, 1), one word each."""
    for i in range(len(out)):
        out[i] = _unit(state)


@njit(cache=True, nogil=True)
def _integral(x: float, exponent: float) -> float:
    """The integral of t**-exponent from 1 to x, also for exponents near 1."""
    log_x = math.log(x)
    t = (1.0 - exponent) * log_x
    return log_x * (math.expm1(t) / t if abs(t) > 1e-8 else 1.0 + t / 2)


@njit(cache=True, nogil=True)
def _inverse_integral(area: float, exponent: float) -> float:
    t = max((1.0 - exponent) * area, -1.0 + 1e-16)
    return math.exp(area * (math.log1p(t) / t if abs(t) > 1e-8 else 1.0 - t / 2))


@njit(cache=True, nogil=True)
def fill_zipf(state: Array, n: int, exponent: float, out: Array) -> None:
    """Ranks 0..n-1 with probability proportional to (rank + 1)**-exponent: rejection-inversion.

    Reference: W. Hörmann, G. Derflinger, Rejection-inversion to generate variates from monotone
    discrete distributions, ACM TOMACS 6(3), 1996.
    """
    low = _integral(1.5, exponent) - 1.0
    high = _integral(n + 0.5, exponent)
    sure = 2.0 - _inverse_integral(_integral(2.5, exponent) - 2.0**-exponent, exponent)
    for i in range(len(out)):
        while True:
            area = high + _unit(state) * (low - high)
            x = _inverse_integral(area, exponent)
            k = min(max(int(x + 0.5), 1), n)
            if k - x <= sure or area >= _integral(k + 0.5, exponent) - math.exp(-exponent * math.log(k)):
                out[i] = k - 1
                break


@njit(cache=True, nogil=True)
def fill_zipf_continuous(state: Array, n: int, exponent: float, out: Array) -> None:
    """Ranks 0..n-1 by the inverse of the integral of x**-exponent over [1, n + 1], rounded down."""
    whole = _integral(n + 1.0, exponent)
    for i in range(len(out)):
        x = _inverse_integral(_unit(state) * whole, exponent)
        out[i] = min(int(x), n) - 1


@njit(cache=True, nogil=True)
def permute(values: Array, n: int, round_keys: Array) -> None:
    """Replace each of `values`, all in [0, n), by its image under one permutation of [0, n).

    A Feistel network over pairs (high, low) of a grid slightly larger than n; an image outside
    [0, n) is mapped again until it falls inside, so the mapping remains a bijection.
    """
    width = int(math.sqrt(n - 1)) + 1
    wide = np.uint64(width)
    tall = np.uint64((n + width - 1) // width)
    bound = np.uint64(n)
    for i in range(len(values)):
        value = np.uint64(values[i])
        while True:
            high = value // wide
            low = value - high * wide
            for j in range(0, len(round_keys), 2):
                high += ((_mix(low ^ round_keys[j]) >> _32) * tall) >> _32
                high -= tall if high >= tall else np.uint64(0)
                low += ((_mix(high ^ round_keys[j + 1]) >> _32) * wide) >> _32
                low -= wide if low >= wide else np.uint64(0)
            value = high * wide + low
            if value < bound:
                break
        values[i] = np.int64(value)


@njit(cache=True, nogil=True)
def fill_sorted(state: Array, passed: Array, left: int, n: int, out: Array) -> None:
    """The next keys of a uniform sample of [0, n), in ascending order; `left` keys are still to come.

    The smallest of m uniform numbers can be drawn without the others: one step per key and nothing to sort.
    `passed` is -log of the rest of the unit interval, 0 at the start, and is advanced.

    Reference: J. L. Bentley, J. B. Saxe, Generating sorted lists of random numbers, ACM TOMS 6(3), 1980.
    """
    for i in range(len(out)):
        passed[0] -= math.log(1.0 - _unit(state)) / (left - i)
        out[i] = min(int(-math.expm1(-passed[0]) * n), n - 1)


@njit(cache=True, nogil=True)
def build_alias(weights: Array, stay: Array, alias: Array) -> None:
    """Cut the weights into equal columns of at most two values: i with probability stay[i], else alias[i].

    Reference: M. D. Vose, A linear algorithm for generating random numbers with a given distribution,
    IEEE TSE 17(9), 1991.
    """
    n = len(weights)
    waiting = np.empty(n, np.int64)  # values below the mean at the left end, those above it at the right end
    below, above = 0, n
    mean = weights.sum() / n
    for i in range(n):
        stay[i] = weights[i] / mean
        alias[i] = i
        if stay[i] < 1.0:
            waiting[below] = i
            below += 1
        else:
            above -= 1
            waiting[above] = i
    while below > 0 and above < n:
        below -= 1
        small, large = waiting[below], waiting[above]
        alias[small] = large
        stay[large] -= 1.0 - stay[small]
        if stay[large] < 1.0:
            above += 1
            waiting[below] = large
            below += 1
    for k in range(below):  # these are below the mean only by rounding
        stay[waiting[k]] = 1.0


@njit(cache=True, nogil=True)
def fill_alias(state: Array, stay: Array, alias: Array, out: Array) -> None:
    """Values 0..len(stay)-1 with the weights given to `build_alias`."""
    n = len(stay)
    for i in range(len(out)):
        x = _unit(state) * n
        column = int(x)
        out[i] = column if x - column < stay[column] else alias[column]


@njit(cache=True, nogil=True)
def follow_mean(steps: Array, distance: float, pull: float) -> None:
    """Turn random steps into distances from a level, each pulled back from the one before."""
    for row in range(len(steps)):
        distance = (1 - pull) * distance + steps[row]
        steps[row] = distance
