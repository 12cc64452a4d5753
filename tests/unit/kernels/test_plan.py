# mypy: disable-error-code="call-arg"
"""The read plan, compared with brute force, the paper's recurrence, and a greedy rule."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoin.operators.read_plan import make_plan


def plan_cost(start, stop, firsts, positioning, transfer):
    lasts = [*(first - 1 for first in firsts[1:]), len(start) - 1]
    return sum(
        positioning + transfer * (stop[last] - start[first])
        for first, last in zip(firsts, lasts, strict=True)
    )


def brute_force(start, stop, positioning, transfer, max_scan, max_pages=1000):
    """The least cost of all ways to divide the pages into scans."""

    @cache
    def best(first):
        if first == len(start):
            return 0.0
        return min(
            positioning + transfer * (stop[last] - start[first]) + best(last + 1)
            for last in range(first, min(len(start), first + max_pages))
            if last == first or stop[last] - start[first] <= max_scan
        )

    return best(0)


def greedy(start, stop, positioning, transfer, max_scan):
    """The first page of each scan, which continues while the gap is worth it and the scan is not too long."""
    firsts = [0]
    for page in range(1, len(start)):
        gap = start[page] - stop[page - 1]
        if transfer * gap >= positioning or stop[page] - start[firsts[-1]] > max_scan:
            firsts.append(page)
    return firsts


@st.composite
def wanted_pages(draw):
    gaps = draw(st.lists(st.integers(0, 30), min_size=1, max_size=14))
    lengths = draw(st.lists(st.integers(1, 4), min_size=len(gaps), max_size=len(gaps)))
    start, at = [], 0
    for gap, length in zip(gaps, lengths, strict=True):
        start.append(at + gap)
        at += gap + length
    return np.array(start), np.array(lengths)


costs = st.tuples(st.integers(0, 40), st.integers(1, 5)).map(lambda pair: (float(pair[0]), float(pair[1])))


@given(pages=wanted_pages(), cost=costs, max_scan=st.integers(1, 80))
def test_the_plan_is_as_cheap_as_the_best_of_all_plans(pages, cost, max_scan):
    start, blocks = pages
    plan = make_plan(start, blocks, *cost, max_scan, 1000)
    ours = plan_cost(start, start + blocks, plan.first.tolist(), *cost)
    assert ours == pytest.approx(brute_force(start.tolist(), (start + blocks).tolist(), *cost, max_scan))


@given(pages=wanted_pages(), cost=costs, max_scan=st.integers(1, 80))
def test_the_plan_covers_every_page_once_in_scans_of_bounded_length(pages, cost, max_scan):
    start, blocks = pages
    plan = make_plan(start, blocks, *cost, max_scan, 1000)
    covered = [
        page for first, last in zip(plan.first, plan.last, strict=True) for page in range(first, last + 1)
    ]
    assert covered == list(range(len(start)))
    for first, last, length in zip(plan.first, plan.last, plan.blocks, strict=True):
        assert length == start[last] + blocks[last] - start[first]
        assert length <= max_scan or first == last


@given(pages=wanted_pages(), cost=costs)
def test_the_gap_rule_is_optimal_for_scans_of_any_length(pages, cost):
    start, blocks = pages
    plan = make_plan(start, blocks, *cost, 1 << 40, 1000)
    by_gaps = greedy(start, start + blocks, *cost, 1 << 40)
    ours = plan_cost(start, start + blocks, plan.first.tolist(), *cost)
    assert ours == pytest.approx(plan_cost(start, start + blocks, by_gaps, *cost))


@given(pages=wanted_pages(), cost=costs, max_scan=st.integers(1, 80))
def test_the_plan_is_never_more_expensive_than_greedy(pages, cost, max_scan):
    start, blocks = pages
    plan = make_plan(start, blocks, *cost, max_scan, 1000)
    ours = plan_cost(start, start + blocks, plan.first.tolist(), *cost)
    theirs = plan_cost(start, start + blocks, greedy(start, start + blocks, *cost, max_scan), *cost)
    assert ours <= theirs + 1e-9


def test_the_plan_beats_greedy_where_the_length_of_scans_is_bounded():
    start, blocks = np.array([0, 3, 4]), np.array([1, 1, 1])
    plan = make_plan(start, blocks, 10.0, 1.0, 4, 1000)
    stop = start + blocks
    ours = plan_cost(start, stop, plan.first.tolist(), 10.0, 1.0)
    theirs = plan_cost(start, stop, greedy(start, stop, 10.0, 1.0, 4), 10.0, 1.0)
    assert ours < theirs


def test_two_pages_share_a_scan_iff_their_distance_is_below_one_plus_s_over_t():
    positioning, transfer = 8.0, 2.0
    for distance in range(1, 12):
        plan = make_plan(np.array([0, distance]), np.array([1, 1]), positioning, transfer, 1 << 40, 1000)
        assert (len(plan) == 1) == (
            distance < 1 + positioning / transfer
        ) or distance == 1 + positioning / transfer


@given(pages=wanted_pages(), cost=costs, max_scan=st.integers(1, 80), max_pages=st.integers(1, 5))
def test_with_a_maximum_of_pages_per_scan_the_plan_is_still_the_cheapest(pages, cost, max_scan, max_pages):
    start, blocks = pages
    plan = make_plan(start, blocks, *cost, max_scan, max_pages)
    assert (plan.last - plan.first).max() < max_pages
    ours = plan_cost(start, start + blocks, plan.first.tolist(), *cost)
    stop = (start + blocks).tolist()
    assert ours == pytest.approx(brute_force(start.tolist(), stop, *cost, max_scan, max_pages))


def test_a_page_longer_than_the_longest_scan_is_a_scan_of_its_own():
    plan = make_plan(np.array([0, 9, 10]), np.array([9, 1, 1]), 1.0, 1.0, 3, 1000)
    assert plan.first.tolist() == [0, 1]


def test_a_million_pages_take_linear_memory_and_agree_with_the_papers_recurrence():
    random = np.random.default_rng(3)
    start = np.cumsum(random.integers(1, 20, 5000))
    blocks = np.ones(5000, np.int64)
    positioning, transfer, max_scan = 12.0, 1.0, 50
    opt = np.zeros(len(start) + 1)
    for j in range(len(start) - 1, -1, -1):
        opt[j] = np.inf
        for k in range(j, len(start)):
            length = start[k] - start[j] + 1
            if length > max_scan:
                break
            opt[j] = min(opt[j], positioning + transfer * length + opt[k + 1])
    plan = make_plan(start, blocks, positioning, transfer, max_scan, 10_000)
    assert plan_cost(start, start + blocks, plan.first.tolist(), positioning, transfer) == pytest.approx(
        opt[0]
    )
