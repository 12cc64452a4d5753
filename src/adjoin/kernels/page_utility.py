"""How useful each page is, as a counter for every page."""

from adjoin.kernels.compiling import kernel
from adjoin.kernels.types import Array


@kernel
def credit_pages(utility: Array, pages: Array, amount: float) -> None:
    """Add `amount` to each listed page; a page may be listed several times."""
    for i in range(len(pages)):
        utility[pages[i]] += amount
