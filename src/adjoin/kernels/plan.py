"""The cheapest way to read a set of pages: which neighbors share a scan."""

import numpy as np

from adjoin.kernels.compiling import kernel
from adjoin.kernels.types import Array


@kernel
def plan_reads(
    start: Array, stop: Array, positioning: float, transfer: float, max_scan: int, max_pages: int
) -> Array:
    """The first page of each scan in the cheapest plan, as ascending positions into `start`.

    Page i covers the blocks [start[i], stop[i]), ascending and disjoint. A scan of n blocks
    costs `positioning + transfer * n`. It covers at most `max_pages` pages and `max_scan` blocks,
    except that a single longer page is a scan of its own.
    With cost[k] the least cost of reading the pages before k,

        cost[k+1] = positioning + transfer * stop[k] + min over j (cost[j] - transfer * start[j])

    where j runs over the scans start[j]..stop[k] that are short enough. Both ends of that
    window only move forward, so a monotone queue yields each minimum in O(1), and the whole plan
    takes O(pages).
    """
    pages = len(start)
    cost = np.empty(pages + 1, np.float64)
    opened_at = np.empty(pages + 1, np.int32)
    queue = np.empty(pages, np.int32)
    head = 0
    tail = 0
    cost[0] = 0.0
    for k in range(pages):
        value = cost[k] - transfer * start[k]
        while tail > head and cost[queue[tail - 1]] - transfer * start[queue[tail - 1]] >= value:
            tail -= 1
        queue[tail] = k
        tail += 1
        while queue[head] < k and (stop[k] - start[queue[head]] > max_scan or k - queue[head] >= max_pages):
            head += 1
        j = queue[head]
        cost[k + 1] = positioning + transfer * (stop[k] - start[j]) + cost[j]
        opened_at[k + 1] = j
    scans = 0
    k = pages
    while k > 0:
        k = opened_at[k]
        scans += 1
    firsts = np.empty(scans, np.int32)
    k = pages
    while k > 0:
        k = opened_at[k]
        scans -= 1
        firsts[scans] = k
    return firsts
