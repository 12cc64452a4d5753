"""The cost model of HYBRIDJOIN."""

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

Form = Literal["corrected", "paper"]
_FITTED = 1.36
_CLOSE = 1e-4


def paper_input_rows(waiting_rows: Number, buffer_rows: Number, master_rows: float) -> Number:
    """Stream rows that an iteration answers, as printed: 1.36 h_S d / R_t.

    Example:
        >>> round(paper_input_rows(10_000.0, 100.0, 20_000.0), 3)
        68.0

    Reference:
        M. A. Naeem, G. Dobbie, G. Weber, HYBRIDJOIN for near-real-time data warehousing, IJDWM 7(4), 2011,
        equation 2; its constant -1.36 was fitted, and is divided by the exponent -1.

    Departures:
        None here; `input_rows` is the corrected form. For uniform keys it is nearly 2 h_S d / R_t, because
        the partition of the oldest row has gathered rows for longer than the average.
    """
    return _FITTED * waiting_rows * buffer_rows / master_rows


def input_rows(weights: ArrayLike, waiting_rows: float, buffer_pages: int) -> float:
    """Stream rows that an iteration answers, corrected.

    Args:
        weights: How often the stream wants each page, in the order of the disk.
        waiting_rows: Rows that the queue holds (h_S).
        buffer_pages: Pages of the disk buffer.

    Example:
        >>> round(input_rows(np.ones(200), 10_000, 1))
        100
    """
    return float(rows_per_load(Popularity(weights).partitions(buffer_pages), waiting_rows))


def tune(setting: Setting, constants: CostConstants, weights: ArrayLike, form: Form = "corrected") -> Tuning:
    """The disk buffer for which the predicted service rate is highest.

    How it works: a grid of buffer sizes; `best_buffer_bytes` is the closed form if `form` is "paper".

    Args:
        setting: Memory and sizes.
        constants: What work costs.
        weights: How often the stream wants each page, in the order of the disk.
        form: Which form of the rows per iteration.

    Example:
        >>> paper = Setting(50e6, 2_000_000, master_row_bytes=120, waiting_row_bytes=32)
        >>> best = tune(paper, CostConstants(8e-3, 1e-8), np.ones(25_000), "paper")
        >>> best.swappable_pages, round(best.rows_per_second)  # pages of 9600 bytes
        (609, 687774)

    Cost:
        Time O(pages) for each of about twenty buffer sizes.
    """
    if form not in get_args(Form):
        raise OptionError(f"form={form!r}: choose one of {get_args(Form)}")
    popularity = Popularity(weights)
    return search(
        setting, constants, len(popularity), "none", partial(_predict, setting, constants, popularity, form)
    )


def _predict(
    setting: Setting, constants: CostConstants, popularity: Popularity, form: Form, grid: Grid
) -> tuple[Array, Array]:
    rows = grid.swappable_pages * (setting.master_rows / len(popularity))
    if form == "paper":
        answered = paper_input_rows(grid.waiting_rows, rows, setting.master_rows)
    else:
        partitions = popularity.grid(grid.swappable_pages, np.zeros_like(grid.swappable_pages))
        answered = rows_per_load(partitions, grid.waiting_rows, _CLOSE)
    return answered, loop_seconds(constants, rows * setting.master_row_bytes, rows, answered)
