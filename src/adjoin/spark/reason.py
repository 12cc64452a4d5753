"""Recover the error that adjoin raised on an executor from Spark's report of it."""

import re
from collections.abc import Iterator
from contextlib import suppress

from adjoin import errors
from adjoin.errors import AdjoinError

_RAISED = re.compile(
    r"\badjoin\.errors\.(\w+): (.+?)"
    # What can follow the message: the end, a blank line, Spark's error code, a Java stack frame.
    r"(?=\s*\Z|\n\s*\n|\s+SQLSTATE: \w{5}\b|\n\s+at \S+\()",
    re.DOTALL,
)


def reason(error: BaseException | str | None) -> AdjoinError | None:
    """The adjoin error behind a Spark error, as it was raised on an executor or in `foreachBatch`.

    Spark wraps it in thousands of characters of Python and Java stack traces; this returns the line that says
    what was wrong, with which value, and what to do.

    Args:
        error: What Spark raised (`StreamingQueryException`, `PySparkException`, on classic or on Connect),
            `query.exception()`, or the string a listener gets in `QueryTerminatedEvent.exception`.

    Returns:
        An error of the same class with the same message; None if adjoin did not raise it.

    Example:
        >>> reason("Aborted: ... adjoin.errors.OptionError: 'id' is wrong; give another SQLSTATE: 38000")
        OptionError("'id' is wrong; give another")
        >>> reason(ValueError("something else")) is None
        True
    """
    for one in _chain(error):
        if isinstance(one, AdjoinError):
            return one
    for one in _chain(error):
        with suppress(Exception):  # the error of a stopped session cannot be read
            found = _RAISED.findall(str(one))
            if found:
                return _made(*found[-1])
    return None


def _chain(error: BaseException | str | None) -> Iterator[BaseException | str]:
    """The error and its causes, each once."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = None if isinstance(error, str) else error.__cause__ or error.__context__


def _made(name: str, message: str) -> AdjoinError:
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, AdjoinError):
        return kind(message)
    return AdjoinError(f"{name}: {message}")  # the executors have a newer adjoin
