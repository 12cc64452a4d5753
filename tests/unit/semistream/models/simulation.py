"""HYBRIDJOIN and X-HYBRIDJOIN reduced to what decides how many rows a read serves.

Keys are drawn independently and the stream never ends; rows of one partition are alike. Without pinned pages
it is HYBRIDJOIN.
"""

import numpy as np

from adjoin.semistream.models.popularity import Partitions

PINNED = -1


def simulate(partitions: Partitions, waiting_rows: int, stream_rows: int, seed: int = 0) -> float:
    """Rows answered per iteration, without the first rounds of the queue."""
    wanted = draw(partitions, stream_rows, seed)
    waiting = [0] * len(partitions.share)
    read_up_to = [0] * len(partitions.share)
    oldest = end = iterations = counted_from = answered_before = 0
    to_read = waiting_rows
    while end + to_read <= stream_rows:
        new = wanted[end : end + to_read]
        end += to_read
        to_read = 0
        for partition in new:
            if partition == PINNED:
                to_read += 1
            else:
                waiting[partition] += 1
        while oldest < end and (wanted[oldest] == PINNED or oldest < read_up_to[wanted[oldest]]):
            oldest += 1
        if oldest < end:
            partition = wanted[oldest]
            to_read += waiting[partition]
            waiting[partition], read_up_to[partition] = 0, end
        iterations += 1
        if end < min(10 * waiting_rows, stream_rows // 2):
            counted_from, answered_before = iterations, end
    return (end - answered_before) / (iterations - counted_from)


def draw(partitions: Partitions, stream_rows: int, seed: int) -> list[int]:
    """The partition that each stream row wants."""
    shares = np.append(partitions.pinned_share, partitions.share * (1 - partitions.pinned_share))
    ends = np.cumsum(shares) / shares.sum()
    uniform = np.random.default_rng(seed).random(stream_rows)
    return (np.searchsorted(ends, uniform, side="right") - 1).tolist()
