"""Which rows are late, and which leave, at a watermark: exactly as in Spark's own join of two streams."""

from adjoin.spark.join.options import JoinOptions
from adjoin.spark.join.turn import Times

_MICROSECONDS = 1000
"""In a millisecond, the unit of watermarks."""


def late_at(options: JoinOptions, watermark: int) -> Times:
    """For each side, the last time at which rows are late: that of the watermark of the micro-batch before.

    Args:
        options: The join.
        watermark: The watermark of the micro-batch before, in milliseconds; 0 in the first one.
    """
    left, right = options.watermarked
    limit = watermark * _MICROSECONDS
    return None if left is None else limit, None if right is None else limit


def expired_at(options: JoinOptions, watermark: int) -> Times:
    """For each side, the time before which rows leave at the end of a micro-batch with this watermark.

    A left row leaves when no right row can come any more whose time is at most `after` later; a right row
    when no left row can come whose time is at most `before` later. Spark computes the last time that leaves
    in whole milliseconds, rounded towards zero, and one millisecond less because the bounds are inclusive.
    """
    if not options.can_expire:
        return None, None
    return _expired(options.after_microseconds, watermark), _expired(options.before_microseconds, watermark)


def _expired(bound: int | None, watermark: int) -> int | None:
    if bound is None:
        return None
    exact = watermark * _MICROSECONDS - bound
    milliseconds = abs(exact) // _MICROSECONDS * (1 if exact >= 0 else -1)
    return (milliseconds - 1) * _MICROSECONDS + 1
