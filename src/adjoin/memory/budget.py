"""A limit in bytes that named accounts share and never exceed."""

import re

import numpy as np

from adjoin.errors import BudgetError, OptionError

_UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}

_MOST_BYTES = 1 << 47
"""The address space of a process."""


def parse_bytes(memory: int | str) -> int:
    """Bytes from an int or from a string such as ``"64MB"`` (powers of two).

    >>> parse_bytes("64MB")
    67108864
    """
    if isinstance(memory, int | np.integer) and not isinstance(memory, bool) and 0 < memory <= _MOST_BYTES:
        return int(memory)
    if isinstance(memory, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?I?B?)\s*", memory.upper())
        if match:
            unit = match[2].replace("I", "")
            size = int(float(match[1]) * _UNITS[unit if unit.endswith("B") else unit + "B"])
            if 0 < size <= _MOST_BYTES:
                return size
    shown = "an integer that large" if isinstance(memory, int) and memory > _MOST_BYTES else repr(memory)
    raise OptionError(f'memory={shown} is not a size; give bytes or a string such as "64MB"')


class MemoryBudget:
    """The memory of one operator, divided among named accounts.

    Every structure asks before it allocates, so ``peak_bytes <= total_bytes`` holds at all times.

    >>> budget = MemoryBudget(100)
    >>> budget.set("pages", 60)
    >>> budget.free_bytes
    40
    """

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.peak_bytes = 0
        self._accounts: dict[str, int] = {}

    @property
    def used_bytes(self) -> int:
        return sum(self._accounts.values())

    @property
    def free_bytes(self) -> int:
        return self.total_bytes - self.used_bytes

    def account(self, name: str) -> int:
        """Bytes that the account holds."""
        return self._accounts.get(name, 0)

    def accounts(self) -> dict[str, int]:
        return dict(self._accounts)

    def set(self, name: str, new_bytes: int) -> None:
        """Change what the account holds to `new_bytes`, or raise a BudgetError and change nothing."""
        growth = new_bytes - self.account(name)
        if growth > self.free_bytes:
            least = self.total_bytes + growth - self.free_bytes
            raise BudgetError(
                f"{name} needs {growth:,} more bytes, but only {self.free_bytes:,} of {self.total_bytes:,} "
                f"are free; give memory={least} or more"
            )
        self._accounts[name] = new_bytes
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)

    def add(self, name: str, extra_bytes: int) -> None:
        self.set(name, self.account(name) + extra_bytes)

    def check_invariants(self) -> None:
        assert all(held >= 0 for held in self._accounts.values()), self._accounts
        assert self.used_bytes <= self.peak_bytes <= self.total_bytes
