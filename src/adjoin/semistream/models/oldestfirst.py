"""How many rows a read serves, if always the partition that the oldest waiting row wants is read."""

import numpy as np
from numpy.typing import ArrayLike

from adjoin.semistream.models.popularity import Partitions
from adjoin.semistream.models.setting import Array

_ROUNDS = 100
_CLOSE = 1e-9
_FARTHEST = 3.0
"""The most by which the logarithm of T changes in a round."""
_FEWEST = 1e-9


def rows_per_load(
    partitions: Partitions,
    waiting_rows: ArrayLike,
    close: float = _CLOSE,
    *,
    pinned_rows_wait: bool = True,
) -> Array:
    """Stream rows that leave per iteration in the long run, while the stream never ends (w).

    How it works:
        Count time in stream rows read, without those that pinned pages answer. After a partition of share p
        was read, a row that wants it comes after 1/p, is the oldest after another T, and is then served with
        the x = p T rows that came in between. So the partition is read once in 1/p + T, and a read serves
        1 / sum(p / (1 + x)) rows on average. What is unknown is T, the time from the end of the queue to its
        front. Two balances hold apart from fluctuations: pending rows fill the queue, and the distance
        between its ends stays the same in the long run. Together they say:

            waiting rows = 1 + sum(x (1 + p) (1 + (1 - p) / (1 + x))) / 2

        T is not the same for all partitions. A read of one with a large share frees much of the queue at
        once: the distance between the ends jumps, then shrinks until that partition's next turn, which
        therefore finds it at its shortest. With nothing but this, T is proportional to 1 / (1 + p/2). But
        while the queue is filled up after a large read no other partition is read, so their turns fall on
        what is left of the cycle, where the distance is shorter too. That brings all T together, as far as
        partitions are wanted soon after their turn; `_in_step` says how far.

    Args:
        partitions: Shares of the partitions, and of pinned pages. On a grid, of each point.
        waiting_rows: Rows that the queue holds, pinned or not yet looked up included (h_S).
        close: Relative error at which the solution is good enough.
        pinned_rows_wait: Rows that pinned pages answer have a place in the queue until the next iteration, as
            in the paper; else they are answered before they take one.

    Returns:
        Rows per iteration, those that pinned pages answer included.

    Example:
        >>> from adjoin.semistream.models.popularity import Popularity
        >>> ten_alike = Popularity(np.ones(10)).partitions(1)
        >>> round(float(rows_per_load(ten_alike, 100_000)))  # 2 h / (n + 1)
        18182

    Cost:
        Time O(partitions) per round; two to fifteen rounds of Newton's method.

    Departures:
        HYBRIDJOIN fits w = 1.36 h d / R, X-HYBRIDJOIN uses the variance of a binomial distribution (its
        equation 9). Simulation proves both wrong by factors. This form differs from it by less than 2 % for
        masters sorted by frequency with Zipf exponents up to 1 (with pinned pages, for no more than ten
        partitions, by 5 %), and by less than 8 % for the other distributions tried; the worst has two equally
        hot partitions among cold ones. Beyond exponent 1.2 it can be 15 % low.
    """
    waiting = np.asarray(waiting_rows, np.float64)
    share, weight = partitions.share, partitions.count * partitions.share
    squares = (weight * share).sum(-1)
    jump = (weight * share**2).sum(-1) / squares
    time, in_step, rows = waiting, np.zeros_like(share), np.zeros_like(waiting)
    for _ in range(_ROUNDS):
        slack = share * (1 - (weight * in_step).sum(-1))[..., None] + in_step * squares[..., None]
        x = share * time[..., None] / (1 + slack / 2)
        before, rows = rows, _rows(partitions, x)
        if np.allclose(rows, before, rtol=close, atol=0):
            break
        held, power = _held(partitions, x, rows if pinned_rows_wait else np.zeros_like(rows))
        step = np.log(np.maximum(waiting - 1, _FEWEST) / held) / power
        time, in_step = time * np.exp(np.clip(step, -_FARTHEST, _FARTHEST)), _in_step(x, jump)
    most = waiting if pinned_rows_wait else waiting / (1 - partitions.pinned_share)
    return np.minimum(rows, most)


def _rows(partitions: Partitions, x: Array) -> Array:
    """Rows per iteration, from the rows x that each partition gathers until its turn."""
    loads_per_row = (partitions.count * partitions.share / (1 + x)).sum(-1)
    return 1 / ((1 - partitions.pinned_share) * loads_per_row)


def _held(partitions: Partitions, x: Array, rows: Array) -> tuple[Array, Array]:
    """Rows in the queue besides the oldest, and the power of T with which they grow."""
    share, left = partitions.share, 1 / (1 + x)
    gathered = partitions.count * x * (1 + share) / 2
    pinned = partitions.pinned_share * rows
    held = (gathered * (1 + (1 - share) * left)).sum(-1) + pinned
    growth_of_rows = 1 - (1 - partitions.pinned_share) * rows * (partitions.count * share * left**2).sum(-1)
    growth = (gathered * (1 + (1 - share) * left**2)).sum(-1) + pinned * growth_of_rows
    return held, growth / held


def _in_step(x: Array, jump: Array) -> Array:
    """To what degree partitions are read outside the jumps of the hottest: 0 not at all, 1 always.

    With jumps over the first `jump` of a cycle, turns fall evenly on the rest, each delayed by the wait for a
    first row, which is exponential with mean 1/x of a cycle. This is how far the mean of the two lies from
    the middle of the cycle (0) towards that of the rest (1).
    """
    x = np.maximum(x, 1e-3)
    rest = np.maximum(1 - jump, 1e-9)[..., None]
    wrapped = np.expm1(-rest * x) / (rest * np.expm1(-x))
    return np.clip(1 + 2 * (1 - wrapped) / (np.maximum(jump, 1e-9)[..., None] * x), 0, 1)


def rows_per_load_by_renewal(partitions: Partitions, waiting_rows: float) -> float:
    """The same with one T for all partitions, and without the jumps: simpler, and right for small shares.

    How it works: sum(x (1 + 1 / (1 + x))) / 2 rows wait; bisection finds T.

    Example:
        >>> from adjoin.semistream.models.popularity import Popularity
        >>> ten_alike = Popularity(np.ones(10)).partitions(1)
        >>> round(rows_per_load_by_renewal(ten_alike, 100_000))  # 2 h / n, a tenth too many
        20000
    """
    low, high = 0.0, 4.0 * waiting_rows
    while high - low > _CLOSE * high:
        middle = (low + high) / 2
        x = partitions.share * middle
        held = (partitions.count * x * (1 + 1 / (1 + x))).sum() / 2
        if held + partitions.pinned_share * _rows(partitions, x) < waiting_rows:
            low = middle
        else:
            high = middle
    return float(_rows(partitions, partitions.share * high))
