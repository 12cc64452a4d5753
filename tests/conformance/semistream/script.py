"""An input that reads as data: batches, pauses and new versions of the master in one list."""

from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from adjoin import Pause
from tests.conformance.semistream.snapshots import Snapshot


@dataclass(frozen=True)
class Refresh:
    """From here on the stream is joined with this version."""

    snapshot: Snapshot


Item: TypeAlias = pa.RecordBatch | Pause | Refresh
"""Of a script, which is a list such as ``[b1, Pause(2), b2, Refresh(newer), b3]``."""
