"""Validation of arguments: numbers, names, times and paths."""

import contextlib
import datetime
import math
import numbers
import operator
import os
import re
import threading
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any
from urllib.parse import unquote

import numpy as np

from adjoin.errors import OptionError

MOST_WHOLE = (1 << 63) - 1
MOST_SECONDS = threading.TIMEOUT_MAX
"""The longest time that the system can wait."""
_SECONDS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}
_SPAN_UNITS = {
    **{unit: Fraction(seconds) for unit, seconds in _SECONDS.items()},
    **dict.fromkeys(("s", "sec"), Fraction(1)),
    "min": Fraction(60),
    "h": Fraction(3_600),
    "d": Fraction(86_400),
    **dict.fromkeys(("ms", "millisecond"), Fraction(1, 1_000)),
    **dict.fromkeys(("us", "microsecond"), Fraction(1, 10**6)),
}
_MOST_NUMBER = 10**40
# One slash suffices: `pathlib` turns "hdfs://nn/m" into "hdfs:/nn/m".
_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):/(?:/(?P<host>[^/]*))?")


def whole_number(name: str, value: Any, least: int, most: int = MOST_WHOLE) -> int:
    """The value as an int from `least` to `most`; otherwise an OptionError."""
    number = None
    if not isinstance(value, bool | np.bool_ | np.ndarray):
        with contextlib.suppress(TypeError):
            number = operator.index(value)
    if number is None or number < least:
        raise OptionError(f"{name}={shown(value)} must be a whole number of at least {least}")
    if number > most:
        raise OptionError(f"{name}={shown(value)} must be a whole number of at most {most}")
    return number


def shown(value: Any) -> str:
    """The value as errors show it: some integers have more digits than Python is willing to format."""
    if isinstance(value, int) and abs(value) > 10**30:
        return f"an integer of {value.bit_length()} bits"
    try:
        return repr(value)
    except ValueError:
        return f"a {type(value).__name__} with an integer of too many digits"


def share(name: str, value: Any) -> float:
    """The value as a float from 0 to 1; otherwise an OptionError."""
    number = _real(value)
    if number is None or not 0 <= number <= 1:
        raise OptionError(f"{name}={shown(value)} must be a number from 0 to 1")
    return number


def positive(name: str, value: Any) -> float:
    """The value as a finite float greater than 0; otherwise an OptionError."""
    number = _real(value)
    if number is None or not 0 < number < math.inf:
        raise OptionError(f"{name}={shown(value)} must be a finite number greater than 0")
    return number


def seconds(name: str, value: Any) -> float:
    """The value, a number or a timedelta, as seconds that a clock can wait; otherwise an OptionError."""
    if isinstance(value, datetime.timedelta):
        value = value.total_seconds()
    number = _real(value)
    if number is None or not 0 <= number <= MOST_SECONDS:
        raise OptionError(f"{name}={shown(value)} must be a number of seconds from 0 to {MOST_SECONDS:.0f}")
    return number


def string(name: str, value: Any) -> str:
    """The value if it is a string; otherwise an OptionError."""
    if not isinstance(value, str):
        raise OptionError(f"{name}={value!r} must be a string")
    if not is_utf8(value):
        raise OptionError(f"{name}={value!r} must be a string without lone surrogates")
    return value


def is_utf8(value: str) -> bool:
    """Whether Arrow can store the string: lone surrogates cannot be encoded."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def kind(name: str, value: Any, wanted: Any) -> Any:
    """The value if it is None or an instance of the wanted class; otherwise an OptionError."""
    if value is not None and not isinstance(value, wanted):
        raise OptionError(f"{name}={value!r} must be a {wanted.__name__}, or None for the default")
    return value


def names(name: str, value: Any) -> tuple[str, ...]:
    """The value as a tuple if it is a list of strings; otherwise an OptionError."""
    found: tuple[Any, ...] = (None,)
    if not isinstance(value, str | bytes | Mapping):
        with contextlib.suppress(TypeError):
            found = tuple(value)
    if not all(isinstance(each, str) for each in found):
        raise OptionError(f"{name}={value!r} must be a list of strings")
    return found


def key_pairs(on: Any) -> dict[str, str]:
    """The columns named by `on=`, as a dictionary from key columns of the other side to columns of this one.

    It is empty if a key column is named twice.

    Raises:
        OptionError: `on` is not a name, a list of names or a dictionary of names.
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
    """The value if it is True or False; otherwise an OptionError."""
    if not isinstance(value, bool | np.bool_):
        raise OptionError(f"{name}={value!r} must be True or False")
    return bool(value)


def parse_duration(option: str, given: str | datetime.timedelta) -> float:
    """Seconds from a timedelta or a string such as ``"30 days"``; errors name the option.

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


def exact_number(name: str, value: Any) -> Fraction:
    """The exact value of a finite number as written; otherwise an OptionError.

    >>> exact_number("after", 0.1)
    Fraction(1, 10)
    """
    if isinstance(value, np.integer | np.floating) and value.dtype.kind != "m":
        value = value.item()
    is_number = isinstance(value, int | float | Decimal | Fraction) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or abs(value) > _MOST_NUMBER:
        raise OptionError(f"{name}={shown(value)} must be a finite number")
    return Fraction(str(value)) if isinstance(value, float) else Fraction(value)


def time_span(name: str, value: Any) -> Fraction:
    """Exact seconds from a timedelta, a number of seconds or a string such as "1 hour"; may be negative.

    >>> time_span("after", "1.5 hours"), time_span("before", "-2 ms")
    (Fraction(5400, 1), Fraction(-1, 500))
    """
    if isinstance(value, datetime.timedelta):
        return Fraction(value // datetime.timedelta(microseconds=1), 10**6)
    if isinstance(value, str):
        match = re.fullmatch(r"\s*([+-]?\d{1,20}(?:\.\d{1,20})?)\s*([a-z]+)\s*", value.lower())
        unit = None if match is None else _span_unit(match[2])
        if match is not None and unit is not None:
            return Fraction(match[1]) * unit
        raise OptionError(f'{name}={value!r:.100} must be a span of time such as "1 hour" or "0 s"')
    return exact_number(name, value)


def _span_unit(name: str) -> Fraction | None:
    """Seconds of a unit of time, in the singular or the plural."""
    return _SPAN_UNITS.get(name) or _SPAN_UNITS.get(name.removesuffix("s"))


def local_path(path: object, option: str = "path") -> str:
    """The path of a local file or directory, given as a plain path or a `file:` URI; it need not exist.

    Args:
        path: A string or `os.PathLike`: a plain path, or a URI such as "file:///warehouse/my%20products".
        option: The name of the option, for errors.

    Raises:
        OptionError: It is not a path, or it is a URI with another scheme or host.
    """
    if not isinstance(path, str | os.PathLike) or not isinstance(text := os.fspath(path), str):
        raise OptionError(f"{option}={path!r}: give a path as a string or as pathlib.Path")
    uri = _URI.match(text)
    if uri is not None:
        text = _path_of(text, uri, option)
    if not text or "\0" in text or not _is_encodable(text):
        raise OptionError(
            f"{option}={path!r}: give a path that is not empty, without NUL and without lone surrogates"
        )
    return text


def _is_encodable(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def _path_of(text: str, uri: re.Match[str], option: str) -> str:
    if uri["scheme"].lower() != "file" or (uri["host"] or "").lower() not in {"", "localhost"}:
        raise OptionError(
            f"{option}={text!r}: only local paths are supported, plain or as file:///..., and they must mean "
            "the same directory on every host (a shared or mounted file system); object stores and HDFS are "
            "not supported: mount the store, or copy the files, and give the local path"
        )
    if "?" in text or "#" in text:
        raise OptionError(f"{option}={text!r}: in a file URI, write ? as %3F and # as %23")
    path = text[uri.end() :].lstrip("/")
    return "/" + unquote(path, errors="surrogateescape")


def _real(value: Any) -> float | None:
    """The value as a float; None if it is not a number, or too large for a float."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
