"""The numbers of rows that had their first match, until the caller asks for them."""

from collections.abc import Callable
from contextlib import suppress

import numpy as np

from adjoin.errors import StorageError
from adjoin.kernels.types import Array
from adjoin.streamjoin.disk.spill_file import SpillFile

_NOTHING: Array = np.empty(0, np.int64)


class MatchLog:
    """Numbers of rows of one input, from `start` on; what memory has no room for is in a file.

    Args:
        most_bytes: The memory for numbers.
        open_file: Opens the file once they need more.

    Attributes:
        has_started: Whether rows are recorded.
    """

    def __init__(self, most_bytes: int, open_file: Callable[[], SpillFile]) -> None:
        self._most_bytes = most_bytes
        self._open_file = open_file
        self._file: SpillFile | None = None
        self._written = 0
        self.has_started = False
        self._new: list[Array] = []
        self._new_bytes = 0

    def start(self) -> None:
        """From now on, rows are recorded."""
        self.has_started = True

    def add(self, numbers: Array) -> None:
        """Record rows; if the disk is full, more of them than planned stay in memory."""
        if len(numbers) and self.has_started:
            self._new.append(numbers.astype(np.int64, copy=False))
            self._new_bytes += self._new[-1].nbytes
        if self._new_bytes > self._most_bytes:
            with suppress(StorageError):
                self._spill()

    def _spill(self) -> None:
        if self._file is None:
            self._file = self._open_file()
        data = np.concatenate(self._new).view(np.uint8)
        self._file.write(self._written, data)
        self._written += len(data)
        self._new, self._new_bytes = [], 0

    def numbers(self) -> Array:
        """All recorded numbers, ascending."""
        written = np.empty(self._written, np.uint8)
        if self._file is not None and self._written:
            self._file.fill(0, written)
        return np.sort(np.concatenate([_NOTHING, written.view(np.int64), *self._new]))

    def clear(self) -> None:
        """Forget all of them."""
        self._new, self._new_bytes, self._written = [], 0, 0
        if self._file is not None:
            self._file.cut(0)

    @property
    def file_bytes(self) -> int:
        """Size of the file."""
        return 0 if self._file is None else self._file.bytes

    def close(self) -> None:
        """Release the disk space."""
        if self._file is not None:
            self._file.close()
