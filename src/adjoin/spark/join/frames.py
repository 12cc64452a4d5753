"""Messages between a task and the process that holds its operator, through a Unix socket."""

import json
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_HEADER = struct.Struct("<I")
_MOST_HEADER = 64 << 20
_PAYLOADS = "payloads"


class Frames:
    """Messages: a header of JSON, and any number of payloads.

    Args:
        connection: The socket.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, header: dict[str, Any], *payloads: bytes | memoryview) -> None:
        """Send a message."""
        sizes = [memoryview(payload).nbytes for payload in payloads]
        encoded = json.dumps({**header, _PAYLOADS: sizes}).encode()
        self._connection.sendall(_HEADER.pack(len(encoded)) + encoded)
        for payload in payloads:
            self._connection.sendall(payload)

    def receive(self) -> tuple[dict[str, Any], list[bytes]]:
        """Wait for a message.

        Raises:
            EOFError: The other side is gone.
        """
        (size,) = _HEADER.unpack(self._exactly(_HEADER.size))
        if size > _MOST_HEADER:
            raise EOFError(f"a header of {size} bytes")
        header: dict[str, Any] = json.loads(self._exactly(size))
        return header, [self._exactly(each) for each in header.pop(_PAYLOADS)]

    def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            count = self._connection.recv_into(view)
            if not count:
                raise EOFError("the connection was closed")
            view = view[count:]
        return bytes(data)


@contextmanager
def bind(directory: str, bucket: int) -> Iterator[socket.socket]:
    """Listen for the tasks of a bucket; the caller is the only one who does."""
    with _short_path(directory, bucket) as path, socket.socket(socket.AF_UNIX) as listener:
        with suppress(FileNotFoundError):
            os.unlink(path)
        listener.bind(path)
        listener.listen()
        yield listener


def connect(directory: str, bucket: int) -> socket.socket | None:
    """A connection to the process of a bucket; None if there is no such process."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        with _short_path(directory, bucket) as path:
            connection.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _short_path(directory: str, bucket: int) -> Iterator[str]:
    """The path of the socket through the open directory: a socket's path has at most 107 bytes."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{bucket}.socket"
    finally:
        os.close(descriptor)
