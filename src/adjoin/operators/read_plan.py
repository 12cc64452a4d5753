"""The cheapest plan for reading pages: which of them share a scan."""

from dataclasses import dataclass

import numpy as np

from adjoin.kernels.plan import plan_reads
from adjoin.kernels.search import expand
from adjoin.kernels.types import Array


@dataclass(frozen=True)
class ReadPlan:
    """Scans over wanted pages, in disk order.

    Attributes:
        first: Position of the first wanted page of each scan.
        last: Position of its last wanted page.
        blocks: Blocks that the scan reads, unwanted ones between its pages included.
        goes_on: Whether the scan starts where the previous one ended, without positioning.
    """

    first: Array
    last: Array
    blocks: Array
    goes_on: Array

    def __len__(self) -> int:
        return len(self.first)


def make_plan(
    start_block: Array,
    blocks: Array,
    positioning_seconds: float,
    block_seconds: float,
    max_scan_blocks: int,
    max_scan_pages: int,
) -> ReadPlan:
    """The cheapest plan, exact, in time linear in the pages.

    Args:
        start_block: Where each wanted page begins, ascending.
        blocks: Length of each.
        positioning_seconds: Cost to begin a scan.
        block_seconds: Cost of each block of a scan.
        max_scan_blocks: The longest scan (a longer page is a scan of its own).
        max_scan_pages: The most wanted pages of a scan.

    >>> plan = make_plan(np.array([0, 2, 90]), np.array([2, 2, 2]), 10e-6, 1e-6, 400, 200)
    >>> plan.first, plan.last, plan.blocks
    (array([0, 2], dtype=int32), array([1, 2], dtype=int32), array([4, 2]))
    """
    stop = start_block + blocks
    first = plan_reads(start_block, stop, positioning_seconds, block_seconds, max_scan_blocks, max_scan_pages)
    last = np.append(first[1:], len(start_block)).astype(np.int32) - np.int32(1)
    return ReadPlan(first, last, stop[last] - start_block[first], np.zeros(len(first), bool))


def cut_scans(plan: ReadPlan, start_block: Array, blocks: Array, most_pages: int) -> ReadPlan:
    """The plan with long scans cut into pieces of at most `most_pages` pages, to be read one after the other.

    >>> start, blocks = np.array([0, 2, 6]), np.array([2, 2, 2])
    >>> plan = cut_scans(make_plan(start, blocks, 10e-6, 1e-6, 400, 200), start, blocks, most_pages=2)
    >>> plan.first, plan.blocks, plan.goes_on
    (array([0, 2], dtype=int32), array([4, 4]), array([False,  True]))
    """
    pages = plan.last - plan.first + 1
    if len(pages) == 0 or pages.max() <= most_pages:
        return plan
    scan, piece = expand(
        np.zeros(len(plan), np.int32), -(-pages // most_pages), int((-(-pages // most_pages)).sum())
    )
    first = (plan.first[scan] + piece * most_pages).astype(np.int32)
    last = np.minimum(first + most_pages - 1, plan.last[scan]).astype(np.int32)
    goes_on = piece > 0
    stop = start_block + blocks
    begin = np.where(goes_on, stop[first - 1], start_block[first])
    return ReadPlan(first, last, stop[last] - begin, goes_on)
