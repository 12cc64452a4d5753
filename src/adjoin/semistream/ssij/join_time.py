"""How long a join phase will take: what reading costs at worst, corrected by what was seen."""


class JoinTimeEstimate:
    """Seconds that a join phase over so many pages takes.

    Starts from one random read per page. Afterwards the worst time seen for a similar number of
    pages (the same power of two) takes its place, per page.

    >>> estimate = JoinTimeEstimate(0.01)
    >>> estimate.seconds(100)
    1.0
    >>> estimate.observe(90, 0.45)
    >>> estimate.seconds(100)
    0.5
    """

    def __init__(self, seconds_per_page: float) -> None:
        self._seconds_per_page = seconds_per_page
        self._worst_per_page: dict[int, float] = {}

    def seconds(self, pages: int) -> float:
        per_page = self._worst_per_page.get(pages.bit_length(), self._seconds_per_page)
        return pages * per_page

    def observe(self, pages: int, seconds: float) -> None:
        if pages:
            bucket = pages.bit_length()
            self._worst_per_page[bucket] = max(self._worst_per_page.get(bucket, 0.0), seconds / pages)
