"""Small JSON files whose first line is the XXH64 of the rest: manifests and version records."""

from adjoin.master.data_file import checksum_of


def with_checksum(body: bytes) -> bytes:
    """The body, preceded by a line with its checksum."""
    return f"{checksum_of(body):016x}\n".encode() + body


def without_checksum(data: bytes | bytearray) -> bytes | bytearray | None:
    """The body, or None if it is empty or its checksum differs."""
    first, _, body = data.partition(b"\n")
    is_intact = body and f"{checksum_of(body):016x}".encode() == first
    return body if is_intact else None
