"""The decorators of all kernels: numba compiles a kernel on first use, without the GIL, and caches it.

numba refuses to cache a kernel when neither the directory of the source nor the user's cache directory is
writable. Its one remedy is a setting for the whole process, `numba.config.CACHE_DIR`. It is set only while a
kernel of adjoin is being decorated, so that other users of numba in the process keep their own caches.

Decorating compiles nothing. But numba looks for a writable cache directory each time, so importing adjoin
creates that directory and a temporary file in it.
"""

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import config, njit


def _fallback_directory() -> str:
    """Where to cache compiled kernels if numba's own places are not writable; empty if one of them is."""
    if config.CACHE_DIR:
        return ""
    next_to_source = Path(__file__).parent / "__pycache__"
    users = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    if _is_writable(next_to_source) or (users.is_absolute() and _is_writable(users / "numba")):
        return ""
    own = Path(tempfile.gettempdir()) / f"adjoin-{os.getuid()}" / "kernels"
    if _is_own(own.parent) and _is_writable(own):
        return str(own)
    return tempfile.mkdtemp(prefix="adjoin-kernels-")


def _is_writable(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK | os.X_OK)


def _is_own(directory: Path) -> bool:
    """Whether nobody else can put code there."""
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        held = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(held.st_mode) and held.st_uid == os.getuid() and not held.st_mode & 0o022


_FALLBACK = _fallback_directory()


def kernel(function: Callable[..., Any]) -> Any:
    """A function that numba compiles when it is first called."""
    return _decorated(function, njit(cache=True, nogil=True))


def inline_kernel(function: Callable[..., Any]) -> Any:
    """A kernel whose body is copied into the kernels that call it."""
    return _decorated(function, njit(cache=True, nogil=True, inline="always"))


def _decorated(function: Callable[..., Any], decorator: Callable[..., Any]) -> Any:
    # numba picks the cache directory while it decorates, not while it compiles.
    before = config.CACHE_DIR
    config.CACHE_DIR = _FALLBACK or before
    try:
        return decorator(function)
    finally:
        config.CACHE_DIR = before
