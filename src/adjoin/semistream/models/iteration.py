"""One iteration of a join with a disk buffer: what it costs, and how large the buffer should be."""

import math

from adjoin.semistream.models.setting import CostConstants, Number, Setting


def loop_seconds(
    constants: CostConstants, scan_bytes: Number, probed_rows: Number, input_rows: Number
) -> Number:
    """Seconds for one iteration (c_loop).

    Args:
        constants: What work costs.
        scan_bytes: Bytes that are read.
        probed_rows: Rows that are looked up.
        input_rows: Stream rows that leave, and that take their places (w).

    Example:
        >>> round(loop_seconds(CostConstants(8e-3, 1e-8, probe_seconds=1e-7), 1e6, 1e4, 500.0), 4)
        0.019

    Reference:
        HYBRIDJOIN, equation 3; X-HYBRIDJOIN, equations 2 and 5. There in nanoseconds, here in seconds.
    """
    return (
        constants.scan_seconds(scan_bytes)
        + constants.probe_seconds * probed_rows
        + constants.row_seconds * input_rows
    )


def best_buffer_bytes(setting: Setting, constants: CostConstants) -> float:
    """The best disk buffer, if the rows per read grow with its size times the pending rows.

    How it works:
        With w proportional to v (M - v), and c_loop = a + b v + w c, the time per row is c plus a multiple
        of (a + b v) / (v (M - v)). Its minimum is the positive root of b v^2 + 2 a v - a M = 0. Neither the
        factor of proportionality nor c matters.

    Example:
        >>> round(best_buffer_bytes(Setting(50e6, 2e6, 120, 32), CostConstants(8e-3, 1e-8)))
        5574951

    Reference:
        HYBRIDJOIN, section 4.5, which leaves the calculus to the reader. Exact for its equation 2 and for
        MESHJOIN.
    """
    start = constants.positioning_seconds
    per_byte = constants.byte_seconds + constants.probe_seconds / setting.master_row_bytes
    if start == 0:
        return 0.0
    memory = setting.memory_bytes
    return start * memory / (start + math.sqrt(start * start + start * per_byte * memory))
