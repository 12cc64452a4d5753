"""What draws are compared with, and how far they are from it."""

import numpy as np

SCALES = 2 ** np.arange(10)


def discrete_shares(n: int, exponent: float) -> np.ndarray:
    weights = np.arange(1, n + 1, dtype=float) ** -exponent
    return weights / weights.sum()


def chi_square_excess(counts: np.ndarray, shares: np.ndarray) -> float:
    """How many standard deviations the statistic lies above its mean; rare keys are pooled."""
    expected = shares * counts.sum()
    head = max(int((expected >= 20).sum()), 1)
    observed = np.append(counts[:head], counts[head:].sum())
    wanted = np.append(expected[:head], expected[head:].sum())
    filled = wanted > 5
    freedom = max(int(filled.sum()) - 1, 1)
    statistic = ((observed - wanted)[filled] ** 2 / wanted[filled]).sum()
    return float((statistic - freedom) / np.sqrt(2 * freedom))


def hurst(counts: np.ndarray) -> float:
    """By the variance-time plot: the variance of means over m steps falls as m**(2H - 2)."""
    variances = [counts[: len(counts) // m * m].reshape(-1, m).mean(axis=1).var() for m in SCALES]
    slope = np.polyfit(np.log(SCALES), np.log(variances), 1)[0]
    return float(1 + slope / 2)
