"""A progress line on the terminal for long tasks."""

import sys
import time

_REDRAW_SECONDS = 0.2
_WIDTH = 24


class Progress:
    """A progress bar on stderr, shown if `show` says so, by default if stderr is a terminal."""

    def __init__(self, show: bool | None = None) -> None:
        self._show = sys.stderr.isatty() if show is None else show
        self._drawn_at = 0.0
        self._dirty = False

    def update(self, task: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if not self._show or now - self._drawn_at < _REDRAW_SECONDS:
            return
        self._drawn_at, self._dirty = now, True
        of_total = f" of {total:,}" if total else ""
        sys.stderr.write(f"\r\033[K{task} {_bar(done, total)}{done:,}{of_total} rows")
        sys.stderr.flush()

    def close(self) -> None:
        if self._dirty:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
            self._dirty = False


def _bar(done: int, total: int | None) -> str:
    if not total:
        return ""
    filled = min(_WIDTH, _WIDTH * done // total)
    return f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {min(100, 100 * done // total)} % "
