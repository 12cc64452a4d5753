"""Blocks that do not fit in memory, in a file of their own."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from adjoin.arguments import local_path
from adjoin.errors import CorruptionError, StorageError
from adjoin.kernels.hashing import hash_bytes
from adjoin.kernels.types import Array


class SpillFile:
    """A file of blocks, which nobody else sees: it has no name once it is open.

    Args:
        folder: Where it lies; the system's folder for temporary files by default.
        spend: Is told where every read and write begins and ends, so that a simulated disk can let time pass.

    Attributes:
        bytes: Its length.
    """

    def __init__(
        self, folder: Path | str | None = None, spend: Callable[[int, int], None] | None = None
    ) -> None:
        folder = None if folder is None else local_path(folder, "spill")
        self._folder = folder or tempfile.gettempdir()
        self._spend = spend or (lambda _begin, _end: None)
        try:
            self._file = tempfile.TemporaryFile(dir=folder, prefix="adjoin-", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise StorageError(f"cannot write to {self._folder}: {error.strerror}") from error
        self.bytes = 0

    def append(self, block: Array) -> tuple[int, int]:
        """Write a block; returns where it begins, and its checksum.

        Raises:
            StorageError: There is no room; nothing has changed, and it can be tried again.
        """
        begin = self.bytes
        self.write(begin, block)
        return begin, int(hash_bytes(block, 0, len(block)))

    def write(self, begin: int, block: Array) -> None:
        """Write a block at this place.

        Raises:
            StorageError: There is no room; it can be tried again.
        """
        left = block.data
        try:
            while left:
                left = left[os.pwrite(self._file.fileno(), left, begin + len(block) - len(left)) :]
        except OSError as error:
            raise StorageError(
                f"cannot write {len(block):,} bytes to {self._folder}: {error.strerror}; make room and go on"
            ) from error
        self.bytes = max(self.bytes, begin + len(block))
        self._spend(begin, begin + len(block))

    def read(self, begin: int, target: Array, checksum: int) -> None:
        """Fill `target` with the block that begins there.

        Raises:
            CorruptionError: It is not the block that was written.
        """
        self.fill(begin, target)
        if int(hash_bytes(target, 0, len(target))) != checksum:
            raise CorruptionError(f"a spilled block at byte {begin} is damaged; join the inputs again")

    def fill(self, begin: int, target: Array) -> None:
        """Fill `target` with the bytes that begin there.

        Raises:
            CorruptionError: There are fewer.
        """
        left = target.data
        while left:
            try:
                count = os.preadv(self._file.fileno(), [left], begin + len(target) - len(left))
            except OSError as error:
                raise StorageError(f"cannot read a spilled block: {error.strerror}") from error
            if count == 0:
                raise CorruptionError(f"a spilled block at byte {begin} was cut off")
            left = left[count:]
        self._spend(begin, begin + len(target))

    def close(self) -> None:
        """Give the room on disk back."""
        self._file.close()
