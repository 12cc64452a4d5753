"""Which pages are read together: the cheapest scans over the pages that are wanted."""

from dataclasses import dataclass

import numpy as np

from adjoin.kernels.plan import plan_reads
from adjoin.kernels.types import Array


@dataclass(frozen=True)
class ReadPlan:
    """Scans over wanted pages, in the order of the disk.

    Attributes:
        first: Position of the first wanted page of each scan.
        last: Position of its last wanted page.
        blocks: Blocks that the scan reads, unwanted ones between its pages included.
    """

    first: Array
    last: Array
    blocks: Array

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
    """The cheapest plan, exactly, in time proportional to the pages.

    Args:
        start_block: Where each wanted page begins, ascending.
        blocks: Length of each.
        positioning_seconds: Cost to begin a scan.
        block_seconds: Cost of each block of a scan.
        max_scan_blocks: Longest scan allowed (a longer page is a scan of its own).
        max_scan_pages: Most wanted pages that a scan may have.

    >>> plan = make_plan(np.array([0, 2, 90]), np.array([2, 2, 2]), 10e-6, 1e-6, 400, 200)
    >>> plan.first, plan.last, plan.blocks
    (array([0, 2], dtype=int32), array([1, 2], dtype=int32), array([4, 2]))
    """
    stop = start_block + blocks
    first = plan_reads(start_block, stop, positioning_seconds, block_seconds, max_scan_blocks, max_scan_pages)
    last = np.append(first[1:], len(start_block)).astype(np.int32) - np.int32(1)
    return ReadPlan(first, last, stop[last] - start_block[first])
