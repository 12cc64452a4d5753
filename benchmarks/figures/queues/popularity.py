"""How often the papers' streams need each page of a master sorted by frequency."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjoin.master.master import Master


def page_weights(master: Master, exponent: float) -> NDArray[np.float64]:
    """The share of the stream that needs each page, for the continuous form of Zipf's law."""
    edges = np.append(master.index.first, master.rows)
    return np.diff(continuous_share(edges, master.rows, exponent))


def continuous_share(keys: Any, all_keys: int, exponent: float) -> NDArray[np.float64]:
    """The share of rows with a key below each of these.

    >>> continuous_share([0, 1, 100], 100, 1.0).round(2).tolist()
    [0.0, 0.15, 1.0]
    """
    edges = np.append(np.asarray(keys, np.float64), all_keys) + 1
    whole = np.log(edges) if exponent == 1 else np.expm1((1 - exponent) * np.log(edges)) / (1 - exponent)
    return np.asarray(whole[:-1] / whole[-1])
