"""Functions over arrays, compiled by numba, and nothing else."""

import os
import stat
import tempfile
from pathlib import Path

from numba import config


def _place_for_compiled() -> str | None:
    """Where compiled kernels are kept, if numba's own places will not do; it refuses kernels it cannot keep.

    Its places are beside the code, which may be read-only, and in the user's cache, which may be missing.
    """
    if config.CACHE_DIR:
        return None
    beside = Path(__file__).parent / "__pycache__"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    if _is_writable(beside) or (cache.is_absolute() and _is_writable(cache / "numba")):
        return None
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


config.CACHE_DIR = _place_for_compiled() or config.CACHE_DIR
