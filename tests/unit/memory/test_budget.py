import pytest

from adjoin.errors import BudgetError, OptionError
from adjoin.memory.budget import MemoryBudget, parse_bytes


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (1, 1),
        ("64MB", 64 << 20),
        ("64mb", 64 << 20),
        ("1.5 GB", 3 << 29),
        ("7", 7),
        ("2KiB", 2048),
        ("3M", 3 << 20),
    ],
)
def test_units_of_sizes_are_powers_of_two(given, expected):
    assert parse_bytes(given) == expected


@pytest.mark.parametrize("given", [0, -1, "", "lots", "12 apples", "-3MB", True, None, 1.5, "0MB"])
def test_invalid_sizes_are_refused_with_their_value(given):
    with pytest.raises(OptionError, match="memory="):
        parse_bytes(given)


def test_accounts_never_exceed_the_budget_and_the_error_says_what_suffices():
    budget = MemoryBudget(100)
    budget.set("pages", 60)
    budget.add("rows", 30)
    with pytest.raises(BudgetError, match="memory=110 or more"):
        budget.add("rows", 20)
    assert budget.account("rows") == 30
    budget.set("pages", 10)
    budget.add("rows", 20)
    assert (budget.used_bytes, budget.peak_bytes) == (60, 90)
    budget.check_invariants()
