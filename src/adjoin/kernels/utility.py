"""How useful pages are: counters over all pages."""

from numba import njit

from adjoin.kernels.types import Array


@njit(cache=True, nogil=True)
def credit_pages(utility: Array, pages: Array, amount: float) -> None:
    """Add `amount` to the page of every entry; a page may appear many times."""
    for i in range(len(pages)):
        utility[pages[i]] += amount
