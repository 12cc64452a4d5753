"""What the models know of a join: its memory, its master, pending rows, and what work costs."""

import math
from dataclasses import astuple, dataclass, fields
from typing import Any, TypeVar

from numpy.typing import NDArray

from adjoin.errors import OptionError

Array = NDArray[Any]
Number = TypeVar("Number", float, Array)
"""One value, or one for each point of a grid."""


@dataclass(frozen=True)
class CostConstants:
    """Seconds that reading and handling rows take.

    Args:
        positioning_seconds: Before the first byte of a read.
        byte_seconds: For each byte of a read.
        probe_seconds: To look up one row (c_H).
        output_seconds: To give out one row (c_O).
        remove_seconds: To remove one waiting row (c_E).
        read_seconds: To read one stream row (c_S).
        append_seconds: To append one waiting row (c_A).

    Example:
        >>> disk = CostConstants(positioning_seconds=8e-3, byte_seconds=1e-8, output_seconds=1e-6)
        >>> round(disk.scan_seconds(1e6), 3), disk.row_seconds
        (0.018, 1e-06)
    """

    positioning_seconds: float
    byte_seconds: float
    probe_seconds: float = 0.0
    output_seconds: float = 0.0
    remove_seconds: float = 0.0
    read_seconds: float = 0.0
    append_seconds: float = 0.0

    def __post_init__(self) -> None:
        for field, seconds in zip(fields(self), astuple(self), strict=True):
            if not 0 <= seconds < math.inf:
                raise OptionError(f"{field.name}={seconds!r} must be 0 or more seconds")
        if self.byte_seconds == 0:
            raise OptionError("byte_seconds=0: reading takes time; give the seconds for one byte")

    @property
    def row_seconds(self) -> float:
        """Seconds for each stream row, all but the look-ups."""
        return self.output_seconds + self.remove_seconds + self.read_seconds + self.append_seconds

    def scan_seconds(self, scan_bytes: Number) -> Number:
        """Seconds for one read of this many bytes (c_IO)."""
        return self.positioning_seconds + self.byte_seconds * scan_bytes


@dataclass(frozen=True)
class Setting:
    """Memory and sizes of a join.

    Args:
        memory_bytes: All that the join may use (M).
        master_rows: Rows of the master (R_t).
        master_row_bytes: Bytes of one of them on disk, its share of empty space in pages included (v_R).
        waiting_row_bytes: All that a waiting stream row takes: its values, its place in the queue, its share
            of the hash table (v_S and more).

    Example:
        >>> paper = Setting(50e6, 2e6, master_row_bytes=120, waiting_row_bytes=32)
        >>> paper.waiting_rows(2e6)
        1500000.0
    """

    memory_bytes: float
    master_rows: float
    master_row_bytes: float
    waiting_row_bytes: float

    def __post_init__(self) -> None:
        for field, value in zip(fields(self), astuple(self), strict=True):
            if not 0 < value < math.inf:
                raise OptionError(f"{field.name}={value!r} must be more than 0")

    @property
    def master_bytes(self) -> float:
        """Bytes of the whole master."""
        return self.master_rows * self.master_row_bytes

    def waiting_rows(self, other_bytes: Number) -> Number:
        """Stream rows that fit next to this many other bytes (h_S)."""
        return (self.memory_bytes - other_bytes) / self.waiting_row_bytes


def split_memory(rest_bytes: float, hash_weight: float, queue_weight: float) -> tuple[float, float]:
    """Bytes of hash table and queue, which share what the disk buffer leaves (H_m and Q_m).

    Args:
        rest_bytes: Memory without the disk buffer.
        hash_weight: Weight of the hash table (alpha).
        queue_weight: Weight of the queue (beta; 1 - alpha in the second paper).

    Example:
        >>> split_memory(48e6, 20, 12)
        (30000000.0, 18000000.0)

    Reference:
        HYBRIDJOIN, equation 1; X-HYBRIDJOIN, equations 1 and 4.
    """
    if hash_weight <= 0 or queue_weight < 0:
        raise OptionError(
            f"weights {hash_weight} and {queue_weight}: the first must be above 0, the second at least 0"
        )
    hash_bytes = rest_bytes * hash_weight / (hash_weight + queue_weight)
    return hash_bytes, rest_bytes - hash_bytes
