"""A turn: what a bucket does in one micro-batch."""

import mmap
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from adjoin.errors import StorageError
from adjoin.kernels.hashing import hash_bytes
from adjoin.kernels.types import Array
from adjoin.spark.join.frames import Frames

Times = tuple[int | None, int | None]
"""A time of the left and of the right, in microseconds; None: there is no such time."""


@dataclass(frozen=True)
class Chunk:
    """Packs of one side that are pushed together.

    Attributes:
        side: The side.
        first: The number of the first row that is pushed.
        sizes: The bytes of each pack.
        begin: Where the packs begin in the data of the turn.
    """

    side: int
    first: int
    sizes: tuple[int, ...]
    begin: int


@dataclass(frozen=True)
class Turn:
    """What a bucket does in one micro-batch: it joins and keeps rows, then removes those that have expired.

    Attributes:
        base: The token of the state that it continues.
        token: The token of the state after it.
        late: Rows of a side with this time or an earlier one are dropped.

        expired: Rows of a side with an earlier time leave at the end of the turn.
        chunks: The rows, in the order in which they are pushed.
        data: Their packs.
        digest: Tells the turn from others.
    """

    base: str
    token: str
    late: Times

    expired: Times
    chunks: Sequence[Chunk]
    data: memoryview
    digest: tuple[object, ...]

    def packs(self, chunk: Chunk) -> memoryview:
        """The packs of a chunk."""
        return self.data[chunk.begin : chunk.begin + sum(chunk.sizes)]


@contextmanager
def received(request: dict[str, Any], task: Frames, folder: str | None) -> Iterator[Turn]:
    """Receive a turn as a whole; its packs are in a file without a name, so they take no memory.

    Args:
        request: Its facts.
        task: Sends a message for every chunk, then one without a side.
        folder: The directory of the file; None for the system's temporary directory.
    """
    times = {name: tuple(request[name]) for name in ("late", "expired")}
    chunks, end = [], 0
    digest = [*times.values()]
    failure: StorageError | None = None
    with ExitStack() as stack:
        try:
            file = stack.enter_context(tempfile.TemporaryFile(dir=folder, prefix="adjoin-", buffering=0))
        except OSError as error:
            failure = _refused(folder, error)
        while "side" in (message := task.receive())[0]:
            if failure is not None:
                continue  # it is raised when the task listens
            header, packs = message
            data = np.frombuffer(b"".join(packs), np.uint8)
            try:
                _write(file, data)
            except OSError as error:
                failure = _refused(folder, error)
            chunks.append(Chunk(header["side"], header["first"], tuple(map(len, packs)), end))
            digest.append((header["side"], header["first"], len(data), int(hash_bytes(data, 0, len(data)))))
            end += len(data)
        if failure is not None:
            raise failure
        with _mapped(file, end) as view:
            yield Turn(
                request["base"], request["token"], **times, chunks=chunks, data=view, digest=tuple(digest)
            )


def _write(file: Any, data: Array) -> None:
    view = data.data
    while view:
        view = view[file.write(view) :]


def _refused(folder: str | None, error: OSError) -> StorageError:
    return StorageError(
        f"cannot write arriving rows to {folder or tempfile.gettempdir()}: {error.strerror}; make room, or "
        "name another directory with spill="
    )


@contextmanager
def _mapped(file: Any, size: int) -> Iterator[memoryview]:
    if not size:
        yield memoryview(b"")
        return
    mapped = mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ)
    yield memoryview(mapped)  # unmapped with the last batch that refers to it
