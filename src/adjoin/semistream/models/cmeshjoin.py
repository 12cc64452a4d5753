"""The cost model of CMESHJOIN: a cache of master rows before MESHJOIN.

Symbols: h = cached rows (h_R), V = v_R + 8 bytes for each, R = master rows, M = memory, p_N(h) = share of the
stream that the cache answers, mu_m and mu_cm = service rates of the join behind and of both.
"""

import math

from adjoin.errors import OptionError
from adjoin.semistream.models.popularity import power_sum
from adjoin.semistream.models.setting import Setting

_RECORDER_BYTES = 8
"""The counter that each cached row has."""
_HALLEY_STEPS = 6


def cached_share(cached_rows: float, master_rows: float, exponent: float = 1.0) -> float:
    """Share of stream rows that want one of the most frequent rows (equation 1).

    Example:
        >>> round(cached_share(119_000, 100_000_000), 3)
        0.646
    """
    return float(power_sum(cached_rows, exponent) / power_sum(master_rows, exponent))


def share_slope(cached_rows: float, master_rows: float, exponent: float = 1.0) -> float:
    """What one more cached row adds to that share (equation 2).

    Example:
        >>> share_slope(100, 10_000) == 0.01 / float(power_sum(10_000, 1.0))
        True
    """
    return cached_rows**-exponent / float(power_sum(master_rows, exponent))


def behind_rate(setting: Setting, cached_rows: float, factor: float = 1.0) -> float:
    """Service rate of the MESHJOIN behind: proportional to its memory, inverse to the master (equation 3).

    Args:
        setting: Memory and sizes.
        cached_rows: Rows in the cache.
        factor: Factor of proportionality; the best sizes do not depend on it.

    Example:
        >>> behind_rate(Setting(1.1e8, 1e8, 120, 24), 0)
        1.1
    """
    return factor * (setting.memory_bytes - cached_rows * _cached_bytes(setting)) / setting.master_rows


def service_rate(setting: Setting, cached_rows: float, exponent: float = 1.0, factor: float = 1.0) -> float:
    """Service rate of cache and join together: mu_m / (1 - p_N) (equation 4).

    Example:
        >>> round(service_rate(Setting(1.1e8, 1e8, 120, 24), 119_000), 2)
        2.67
    """
    missed = 1 - cached_share(cached_rows, setting.master_rows, exponent)
    return behind_rate(setting, cached_rows, factor) / missed if missed > 0 else math.inf


def rate_slope(setting: Setting, cached_rows: float, exponent: float = 1.0, factor: float = 1.0) -> float:
    """What one more cached row adds to the service rate (equation 5): 0 at the best size, negative beyond.

    Example:
        >>> paper = Setting(1.1e8, 1e8, 120, 24)
        >>> rate_slope(paper, 50_000) > 0 > rate_slope(paper, 200_000)
        True
    """
    missed = 1 - cached_share(cached_rows, setting.master_rows, exponent)
    lost = -factor * _cached_bytes(setting) / setting.master_rows
    won = behind_rate(setting, cached_rows, factor) * share_slope(cached_rows, setting.master_rows, exponent)
    return (lost * missed + won) / missed**2


def best_cache_rows(setting: Setting, exponent: float = 1.0) -> float:
    """The number of cached rows for which the service rate is highest, for any exponent.

    How it works:
        One more row costs V bytes of the join behind, and saves its share of the rows that come there. Both
        balance where (M - h V) h^-s = V (H(R) - H(h)), with H(n) the sum of x^-s over x = 1..n. The left side
        is the larger up to that size and the smaller beyond, so bisection finds it. Uniform keys give 0: a
        cache does not pay.

    Example:
        >>> round(best_cache_rows(Setting(1.1e8, 1e8, 120, 24)))
        110001

    Reference:
        M. A. Naeem, G. Weber, G. Dobbie, C. Lutteroth, A generic front-stage for semi-stream processing, CIKM
        2013, equation 5 set to 0.
    """
    low, high = 0.0, min(setting.master_rows, setting.memory_bytes / _cached_bytes(setting))
    if high == setting.master_rows:
        return high
    while high - low > max(0.5, 1e-9 * high):
        middle = (low + high) / 2
        if _gain(setting, max(middle, 1.0), exponent) > 0:
            low = middle
        else:
            high = middle
    return high if high > 1 else 0.0


def _gain(setting: Setting, cached_rows: float, exponent: float) -> float:
    """Sign of the slope of the service rate."""
    cost = _cached_bytes(setting)
    missed = float(power_sum(setting.master_rows, exponent) - power_sum(cached_rows, exponent))
    return (setting.memory_bytes - cached_rows * cost) * cached_rows**-exponent - cost * missed


def best_cache_rows_in_closed_form(setting: Setting) -> float:
    """The same for exponent 1, with logarithms for the harmonic sums.

    How it works: h (1 + ln(R / h)) = M / V = m has the solution h = -m / W(-m / (e R)), with W the lower
    branch of Lambert's function.

    Example:
        >>> round(best_cache_rows_in_closed_form(Setting(1.1e8, 1e8, 120, 24)))
        110001
    """
    fitting = setting.memory_bytes / _cached_bytes(setting)
    if fitting >= setting.master_rows:
        return setting.master_rows
    return -fitting / lambert_lower(-fitting / (math.e * setting.master_rows))


def lambert_lower(z: float) -> float:
    """The solution w <= -1 of w e^w = z, for -1/e <= z < 0.

    How it works: Halley's steps from the series at the branch point, or from ln(-z) - ln(-ln(-z)) beyond.

    Example:
        >>> w = lambert_lower(-0.1)
        >>> round(w, 6), round(w * math.exp(w), 12)
        (-3.577152, -0.1)
    """
    if not -1 / math.e <= z < 0:
        raise OptionError(f"z={z}: it must be from -1/e to less than 0")
    root = math.sqrt(2 * max(1 + math.e * z, 0.0))
    log = math.log(-z)
    w = -1 - root - root * root / 3 if root < 1 else log - math.log(-log)
    for _ in range(_HALLEY_STEPS):
        error = w * math.exp(w) - z
        if w >= -1 or error == 0:
            break
        slope = math.exp(w) * (w + 1)
        w -= error / (slope - (w + 2) * error / (2 * w + 2))
    return w


def cache_threshold(setting: Setting, rows_per_key: float = 1.0) -> float:
    """Matches among the waiting rows from which a key's master rows are worth caching, for any distribution.

    How it works: caching costs the bytes of the key's rows and one counter; it saves those of the stream rows
    that wait for the key. At the best size of the cache, both are equal for the last key cached.

    Args:
        setting: Memory and sizes; a waiting row costs its values and a pointer.
        rows_per_key: Master rows of the key; they are cached together or not at all.

    Example:
        >>> round(cache_threshold(Setting(1.1e8, 1e8, 120, 24)), 2)
        5.33

    Departures:
        The paper leaves the value of its threshold open.
    """
    return (rows_per_key * setting.master_row_bytes + _RECORDER_BYTES) / setting.waiting_row_bytes


def marginal_matches(setting: Setting, cached_rows: float, exponent: float = 1.0) -> float:
    """Waiting rows that want the last row cached: `cache_threshold`, if the cache has its best size.

    Example:
        >>> paper = Setting(1.1e8, 1e8, 120, 24)
        >>> round(marginal_matches(paper, best_cache_rows(paper)), 2)
        5.33
    """
    waiting = setting.waiting_rows(cached_rows * _cached_bytes(setting))
    missed = 1 - cached_share(cached_rows, setting.master_rows, exponent)
    return waiting * share_slope(cached_rows, setting.master_rows, exponent) / missed


def speed_up(setting: Setting, exponent: float = 1.0) -> float:
    """Predicted service rate with the best cache, as a multiple of that without.

    Example:
        >>> round(speed_up(Setting(1.1e8, 1e8, 120, 24)), 1)
        2.4

    Departures:
        The paper measures up to 5 where its own model allows 2.4, and 7 where it allows 3.8.
    """
    return service_rate(setting, best_cache_rows(setting, exponent), exponent) / service_rate(setting, 0.0)


def _cached_bytes(setting: Setting) -> float:
    return setting.master_row_bytes + _RECORDER_BYTES
