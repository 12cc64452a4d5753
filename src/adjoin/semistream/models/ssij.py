"""A cost model of SSIJ: the pages that a join phase reads, and how many rows it answers."""

import numpy as np
from numpy.typing import ArrayLike

from adjoin.errors import OptionError
from adjoin.semistream.models.setting import Array, CostConstants, Setting


def service_rate(
    setting: Setting,
    constants: CostConstants,
    weights: ArrayLike,
    stream_share: float = 0.85,
    max_scan: int = 200,
) -> float:
    """Stream rows answered per second while the stream never ends.

    How it works:
        Pending rows fill a share of the memory, the hottest pages the rest, which answers the share p of
        the stream. A phase with n waiting rows has taken n / (1 - p) rows, and reads every other page that
        one of them wants. Where wanted pages are dense, scans run on over those in between.

    Args:
        setting: Memory and sizes; `master_row_bytes` times `master_rows` are all pages.
        constants: What work costs.
        weights: How often the stream wants each page.
        stream_share: Share of the memory that rows fill before pages are read for them.
        max_scan: Most pages that one scan reads.

    Example:
        >>> small, disk = Setting(1e6, 8e4, 120, 70), CostConstants(8e-3, 1e-8)
        >>> uniform, skewed = np.ones(1000), 1 / np.arange(1, 1001)
        >>> rates = [service_rate(small, disk, weights, stream_share=0.5) for weights in (uniform, skewed)]
        >>> rates[1] > 2 * rates[0]
        True

    Departures:
        The paper has a worst case only (section V).
    """
    if not 0 < stream_share < 1:
        raise OptionError(f"stream_share={stream_share}: it must be between 0 and 1")
    share = np.sort(np.asarray(weights, np.float64))[::-1]
    share /= share.sum()
    page_bytes = setting.master_bytes / len(share)
    cached = min(int((1 - stream_share) * setting.memory_bytes / page_bytes), len(share) - 1)
    waiting_rows = stream_share * setting.memory_bytes / setting.waiting_row_bytes
    missed = max(float(share[cached:].sum()), 1e-12)
    taken_rows = waiting_rows / missed
    wanted_pages = float(-np.expm1(-taken_rows * share[cached:]).sum())
    seconds = _phase_seconds(constants, page_bytes, wanted_pages, len(share), max_scan)
    return taken_rows / (seconds + taken_rows * constants.row_seconds)


def _phase_seconds(
    constants: CostConstants, page_bytes: float, wanted_pages: float, pages: int, max_scan: int
) -> float:
    """Seconds to read this many pages spread over the master, by the rule of the largest gap."""
    page_seconds = constants.byte_seconds * page_bytes
    most_gap = constants.positioning_seconds / page_seconds
    density = min(wanted_pages / pages, 1 - 1e-12)
    is_far = (1 - density) ** most_gap
    scans = wanted_pages * is_far
    gap = _mean_gap(density, most_gap)
    read_pages = wanted_pages * (1 + (1 - is_far) * gap)
    scans += read_pages / max_scan
    return float(constants.positioning_seconds * scans + page_seconds * min(read_pages, pages))


def _mean_gap(density: float, most: float) -> float:
    """Mean number of pages between two wanted ones, of those gaps that are shorter than the most."""
    gaps: Array = np.arange(0, max(int(most), 1))
    chance = density * (1 - density) ** gaps
    return float((gaps * chance).sum() / max(chance.sum(), 1e-300))
