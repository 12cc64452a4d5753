"""Numbers that callers give, checked in one place: whole numbers, shares and times."""

import contextlib
import datetime
import math
import numbers
import operator
import threading
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from adjoin.errors import OptionError

MOST_WHOLE = (1 << 63) - 1
MOST_SECONDS = threading.TIMEOUT_MAX
"""No clock of the system waits longer."""


def whole_number(name: str, value: Any, least: int, most: int = MOST_WHOLE) -> int:
    """The value as an int from `least` to `most`, or an OptionError."""
    number = None
    if not isinstance(value, bool | np.bool_ | np.ndarray):
        with contextlib.suppress(TypeError):
            number = operator.index(value)
    if number is None or number < least:
        raise OptionError(f"{name}={value!r} must be a whole number of at least {least}")
    if number > most:
        raise OptionError(f"{name}={_short(value)} must be a whole number of at most {most}")
    return number


def share(name: str, value: Any) -> float:
    """The value as a float from 0 to 1, or an OptionError."""
    number = _real(value)
    if number is None or not 0 <= number <= 1:
        raise OptionError(f"{name}={_short(value)} must be a number between 0 and 1")
    return number


def positive(name: str, value: Any) -> float:
    """The value as a finite float greater than 0, or an OptionError."""
    number = _real(value)
    if number is None or not 0 < number < math.inf:
        raise OptionError(f"{name}={_short(value)} must be a number greater than 0")
    return number


def seconds(name: str, value: Any) -> float:
    """The value, a number or a timedelta, as seconds that a clock can wait, or an OptionError."""
    if isinstance(value, datetime.timedelta):
        value = value.total_seconds()
    number = _real(value)
    if number is None or not 0 <= number <= MOST_SECONDS:
        raise OptionError(f"{name}={_short(value)} must be a number of seconds from 0 to {MOST_SECONDS:.0f}")
    return number


def text(name: str, value: Any) -> str:
    """The value if it is a string, or an OptionError."""
    if not isinstance(value, str):
        raise OptionError(f"{name}={value!r} must be a string")
    return value


def names(name: str, value: Any) -> tuple[str, ...]:
    """The value as strings if it is a list of them, or an OptionError."""
    is_list = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    found = tuple(value) if is_list else (None,)
    if not all(isinstance(each, str) for each in found):
        raise OptionError(f"{name}={value!r} must be a list of names")
    return found


def key_pairs(on: Any) -> dict[str, str]:
    """What `on=` names: of every key column of the other side, the column of this one; or an OptionError.

    It is empty if a key is named twice.
    """
    if isinstance(on, str):
        return {on: on}
    if isinstance(on, Mapping):
        columns, keys = names("on", on.keys()), names("on", on.values())
    else:
        columns = keys = names("on", on)
    pairs = dict(zip(keys, columns, strict=True))
    return pairs if len(pairs) == len(keys) else {}


def flag(name: str, value: Any) -> bool:
    """The value if it is True or False, or an OptionError."""
    if not isinstance(value, bool | np.bool_):
        raise OptionError(f"{name}={value!r} must be True or False")
    return bool(value)


def _real(value: Any) -> float | None:
    """The value as a float; None if it is no number, or not one that a float can be near."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _short(value: Any) -> str:
    """The value in an error: some numbers have more digits than anybody reads, or Python writes."""
    if isinstance(value, int) and abs(value) > 10**30:
        return f"an integer of {value.bit_length()} bits"
    return repr(value)
