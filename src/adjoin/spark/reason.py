"""What adjoin raised on an executor, out of Spark's report of it."""

import re
from collections.abc import Iterator
from contextlib import suppress

from adjoin import errors
from adjoin.errors import AdjoinError

_RAISED = re.compile(
    r"\badjoin\.errors\.(\w+): (.+?)"
    # What may follow the message: the end, a blank line, Spark's code, a line of a Java trace.
    r"(?=\s*\Z|\n\s*\n|\s+SQLSTATE: \w{5}\b|\n\s+at \S+\()",
    re.DOTALL,
)


def reason(error: BaseException | str | None) -> AdjoinError | None:
    """The error of adjoin behind an error of Spark, as it was raised on an executor or in `foreachBatch`.

    Spark wraps it in thousands of characters of traces from Python and Java; this is the line that says what
    was wrong, with which value, and what to do.

    Args:
        error: What Spark raised (`StreamingQueryException`, `PySparkException`, on classic or on Connect),
            `query.exception()`, or the text that a listener finds in `QueryTerminatedEvent.exception`.

    Returns:
        An error of the same class with the same message; None if the failure is not adjoin's.

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
        with suppress(Exception):  # an error of a session that is gone cannot be read
            found = _RAISED.findall(str(one))
            if found:
                return _made(*found[-1])
    return None


def _chain(error: BaseException | str | None) -> Iterator[BaseException | str]:
    """The error and those behind it, each once."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = None if isinstance(error, str) else error.__cause__ or error.__context__


def _made(name: str, message: str) -> AdjoinError:
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, AdjoinError):
        return kind(message)
    return AdjoinError(f"{name}: {message}")  # of a newer adjoin on the executors
