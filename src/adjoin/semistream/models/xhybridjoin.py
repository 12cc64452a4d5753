"""The cost model of X-HYBRIDJOIN, and the tuning that follows from it."""

from functools import partial
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from adjoin.errors import OptionError
from adjoin.semistream.models.iteration import loop_seconds
from adjoin.semistream.models.oldestfirst import rows_per_load
from adjoin.semistream.models.popularity import Popularity
from adjoin.semistream.models.setting import Array, CostConstants, Number, Setting
from adjoin.semistream.models.tuning import Grid, Tuning, search

Form = Literal["corrected", "mean", "paper"]
_CLOSE = 1e-4


def paper_input_rows(waiting_rows: Number, pinned_share: Number, partitions: Number) -> Number:
    """Stream rows that an iteration answers, as printed in equation 9.

    Args:
        waiting_rows: Rows that the queue holds (h_S).
        pinned_share: Share of stream rows that pinned pages answer (p_N).
        partitions: Swappable partitions (n).

    Example:
        >>> round(paper_input_rows(2000.0, 0.5611, 198.0), 1)
        13.2

    Reference:
        M. A. Naeem, G. Dobbie, G. Weber, Efficient processing of streaming updates with archived master data
        in near-real-time data warehousing, Knowledge and Information Systems, 2013, equations 7 to 9.

    Departures:
        None here. The equation takes p (1 - p), the variance of a binomial distribution, where its mean p
        belongs: `mean_input_rows`. Both take the oldest row's partition for an average one, which it is not:
        `input_rows` is the corrected form.
    """
    old, new = _match_shares(pinned_share, partitions)
    return waiting_rows * old * (1 - old) / (1 + old * (1 - old) - new * (1 - new))


def mean_input_rows(waiting_rows: Number, pinned_share: Number, partitions: Number) -> Number:
    """Equation 9 with means in place of variances; still too low by half.

    Example:
        >>> round(mean_input_rows(2000.0, 0.5611, 198.0), 1)
        22.9
    """
    old, new = _match_shares(pinned_share, partitions)
    return waiting_rows * old / (1 + old - new)


def _match_shares(pinned_share: Number, partitions: Number) -> tuple[Number, Number]:
    """Shares of old and of new rows in the queue that an iteration answers (equations 7 and 8)."""
    old = 1 / partitions
    return old, pinned_share + (1 - pinned_share) * old


def input_rows(
    weights: ArrayLike,
    waiting_rows: float,
    swappable_pages: int,
    pinned_pages: int,
    *,
    pinned_rows_wait: bool = True,
) -> float:
    """Stream rows that an iteration answers, corrected.

    Args:
        weights: How often the stream wants each page, in the order of the disk.
        waiting_rows: Rows that the queue holds (h_S).
        swappable_pages: Pages that are read together (k).
        pinned_pages: Pages that stay in memory (l); the hottest.
        pinned_rows_wait: Rows that pinned pages answer take a place in the queue first, as in the paper.

    Example:
        >>> from adjoin.semistream.models.popularity import zipf_weights
        >>> round(input_rows(zipf_weights(20_000, 100, 1.0), 2000, 1, 2), 1)  # simulated: 47.8
        47.6
    """
    partitions = Popularity(weights).partitions(swappable_pages, pinned_pages)
    return float(rows_per_load(partitions, waiting_rows, pinned_rows_wait=pinned_rows_wait))


def untuned_loop_seconds(constants: CostConstants, setting: Setting, part_bytes: float, rows: float) -> float:
    """Seconds for an iteration whose pinned and swappable parts have the same size (equation 2).

    Example:
        >>> disk = CostConstants(8e-3, 1e-8, probe_seconds=1e-6)
        >>> round(untuned_loop_seconds(disk, Setting(50e6, 2e6, 120, 32), 1.2e6, 100), 4)
        0.04
    """
    return loop_seconds(constants, part_bytes, 2 * part_bytes / setting.master_row_bytes, rows)


def tune(
    setting: Setting,
    constants: CostConstants,
    weights: ArrayLike,
    form: Form = "corrected",
    swappable_pages: int | None = None,
    *,
    pinned_rows_wait: bool = True,
) -> Tuning:
    """The sizes of the swappable and the pinned part for which the predicted service rate is highest.

    How it works: a grid over both sizes; memory is what they and the waiting rows share (equation 4).

    Args:
        setting: Memory and sizes.
        constants: What work costs.
        weights: How often the stream wants each page, in the order of the disk, as observed.
        form: Which form of the rows per iteration: as printed, with means, or corrected. The corrected form
            looks up new stream rows in the pinned part; the others look up all pinned rows among the rows
            that are pending, in every iteration, as printed (equation 5).
        swappable_pages: Size of the swappable part, if that is given.
        pinned_rows_wait: Corrected form: rows that pinned pages answer take a place in the queue first.

    Example:
        >>> from adjoin.semistream.models.popularity import zipf_weights
        >>> paper = Setting(50e6, 2_000_000, master_row_bytes=120, waiting_row_bytes=32)
        >>> best = tune(paper, CostConstants(8e-3, 1e-8), zipf_weights(2_000_000, 80, 1.0))
        >>> best.pinned_pages > best.swappable_pages > 100
        True

    Cost:
        For 100,000 pages 16 to 65 ms on one core, the more the more pages memory could pin.

    Reference:
        As `paper_input_rows`, section 6.
    """
    if form not in get_args(Form):
        raise OptionError(f"form={form!r}: choose one of {get_args(Form)}")
    popularity = Popularity(weights)
    predict = partial(_predict, setting, constants, popularity, form, pinned_rows_wait)
    return search(setting, constants, len(popularity), "any", predict, swappable_pages)


def _predict(
    setting: Setting,
    constants: CostConstants,
    popularity: Popularity,
    form: Form,
    pinned_rows_wait: bool,
    grid: Grid,
) -> tuple[Array, Array]:
    rows_per_page = setting.master_rows / len(popularity)
    swappable_rows, pinned_rows = grid.swappable_pages * rows_per_page, grid.pinned_pages * rows_per_page
    scan_bytes = swappable_rows * setting.master_row_bytes
    if form == "corrected":
        partitions = popularity.grid(grid.swappable_pages, grid.pinned_pages)
        answered = rows_per_load(partitions, grid.waiting_rows, _CLOSE, pinned_rows_wait=pinned_rows_wait)
        return answered, loop_seconds(constants, scan_bytes, swappable_rows + answered, answered)
    hottest = popularity.weights[popularity.hottest(int(grid.pinned_pages.max()))]
    pinned_share = np.append(0.0, np.cumsum(hottest))[grid.pinned_pages]
    predicted = paper_input_rows if form == "paper" else mean_input_rows
    answered = predicted(
        grid.waiting_rows, pinned_share, (setting.master_rows - pinned_rows) / swappable_rows
    )
    return answered, loop_seconds(constants, scan_bytes, swappable_rows + pinned_rows, answered)
