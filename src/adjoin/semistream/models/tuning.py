"""The best sizes of a disk buffer, found on a grid."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from adjoin.errors import BudgetError
from adjoin.semistream.models.iteration import best_buffer_bytes
from adjoin.semistream.models.setting import Array, CostConstants, Setting

Pages = NDArray[np.int64]
_FINE_STEPS = 2.0 ** np.linspace(-0.75, 0.75, 7)


@dataclass(frozen=True)
class Tuning:
    """A choice of sizes, and what a model predicts for it.

    Attributes:
        swappable_pages: Pages that are read together (k).
        pinned_pages: Pages that stay in memory (l).
        waiting_rows: Stream rows that fit next to them (h_S).
        input_rows: Stream rows that an iteration answers (w).
        loop_seconds: What an iteration takes (c_loop).
    """

    swappable_pages: int
    pinned_pages: int
    waiting_rows: float
    input_rows: float
    loop_seconds: float

    @property
    def rows_per_second(self) -> float:
        """The service rate (mu)."""
        return self.input_rows / self.loop_seconds


@dataclass(frozen=True)
class Grid:
    """Sizes to choose from, in arrays of equal length, and the rows that fit next to them."""

    swappable_pages: Pages
    pinned_pages: Pages
    waiting_rows: Array


Predict = Callable[[Grid], tuple[Array, Array]]
"""Input rows and loop seconds for every point of a grid."""
Pinning = Literal["none", "any"]


def search(
    setting: Setting,
    constants: CostConstants,
    pages: int,
    pinning: Pinning,
    predict: Predict,
    swappable_pages: int | None = None,
) -> Tuning:
    """The sizes of highest predicted rate.

    How it works: a grid of doubled sizes first, then steps of a fourth of a doubling around the best of them.
    No buffer beyond twice the closed form is tried: the rows per read grow at most in proportion to it.
    With `swappable_pages` given, only the pinned part is chosen.
    """
    page_bytes = setting.master_bytes / pages
    most = int(min((setting.memory_bytes - setting.waiting_row_bytes) // page_bytes, pages))
    if most < 1:
        raise BudgetError(
            f"memory of {setting.memory_bytes} bytes cannot hold a page of {page_bytes:.0f} bytes and a row; "
            "give more"
        )
    widest = int(np.clip(2 * best_buffer_bytes(setting, constants) / page_bytes, 1, most))
    pinned = _doublings(min(most, pages - 1)) if pinning == "any" else np.zeros(1, np.int64)
    given = None if swappable_pages is None else np.array([min(swappable_pages, most)])
    coarse = _grid(setting, page_bytes, most, _doublings(widest)[1:] if given is None else given, pinned)
    best = _best(coarse, *predict(coarse))
    swappable = _around(best.swappable_pages, widest) if given is None else given
    fine = _grid(setting, page_bytes, most, swappable, _around(best.pinned_pages, int(pinned.max())))
    return _best(fine, *predict(fine))


def _doublings(most: int) -> Pages:
    """0, 1, 2, 4 and so on, and the most."""
    return np.unique(np.append(2 ** np.arange(most.bit_length()), (0, most)))


def _around(pages: int, most: int) -> Pages:
    return np.unique(np.minimum(np.rint(pages * _FINE_STEPS).astype(np.int64), most))


def _grid(setting: Setting, page_bytes: float, most: int, swappable: Pages, pinned: Pages) -> Grid:
    pairs = np.array(np.meshgrid(swappable, pinned)).reshape(2, -1)
    swappable, pinned = pairs[:, pairs.sum(axis=0) <= most]
    return Grid(swappable, pinned, setting.waiting_rows((swappable + pinned) * page_bytes))


def _best(grid: Grid, input_rows: Array, seconds: Array) -> Tuning:
    best = int(np.argmax(input_rows / seconds))
    return Tuning(
        int(grid.swappable_pages[best]),
        int(grid.pinned_pages[best]),
        float(grid.waiting_rows[best]),
        float(input_rows[best]),
        float(seconds[best]),
    )
