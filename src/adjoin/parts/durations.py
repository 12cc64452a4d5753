"""Lengths of time as users give them."""

import datetime
import re

from adjoin.errors import OptionError

_SECONDS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}


def parse_duration(option: str, given: str | datetime.timedelta) -> float:
    """Seconds from a timedelta or from text such as ``"30 days"``; the option is named in errors.

    >>> parse_duration("tombstones", "12 hours")
    43200.0
    """
    seconds = -1.0
    if isinstance(given, datetime.timedelta):
        seconds = given.total_seconds()
    elif isinstance(given, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(second|minute|hour|day|week)s?\s*", given.lower())
        seconds = float(match[1]) * _SECONDS[match[2]] if match else -1.0
    if not 0 <= seconds < 1e11:
        raise OptionError(f'{option}={given!r}: give a duration such as "30 days", or a timedelta')
    return seconds
