"""The cost model of the index nested loop join."""

from adjoin.semistream.models.setting import CostConstants


def service_rate(constants: CostConstants, page_bytes: float) -> float:
    """Stream rows answered per second: each reads one page at random and is looked up in it.

    Example:
        >>> round(service_rate(CostConstants(8e-3, 1e-8), 8192))
        124

    Reference:
        HYBRIDJOIN, section 3. The index itself is in memory.

    Departures:
        A row never waits, so it is neither appended nor removed; only reading, look-up and output count.
    """
    row_seconds = constants.probe_seconds + constants.read_seconds + constants.output_seconds
    return 1 / (constants.scan_seconds(page_bytes) + row_seconds)
