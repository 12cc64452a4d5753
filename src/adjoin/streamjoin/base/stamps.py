"""Moments: numbers that only grow, so that no two things happen at the same one."""


class Stamps:
    """Gives moments.

    Attributes:
        now: The moment that will be given next.
    """

    def __init__(self) -> None:
        self.now = 0

    def next(self) -> int:
        """A moment after all others."""
        return self.many(1)

    def many(self, count: int) -> int:
        """The first of so many moments in a row."""
        first = self.now
        self.now += count
        return first
