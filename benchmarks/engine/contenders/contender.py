"""The interface of a contender."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

Answers = Iterable[pa.RecordBatch | pa.Table]


@dataclass(frozen=True)
class Setup:
    """What a contender is given."""

    path: Path
    variant: str
    memory_bytes: int


class Contender(ABC):
    """A way to join batches of keys with the master.

    A variant is a setting that may or may not help: all are tried, and the best counts.
    """

    name: ClassVar[str]
    dataset: ClassVar[str]
    settings: ClassVar[str]
    variants: ClassVar[tuple[str, ...]]
    whole_batches: ClassVar[bool] = True  # every batch is answered before the next one

    @abstractmethod
    def __init__(self, setup: Setup) -> None:
        """Open the data set."""

    @classmethod
    @abstractmethod
    def build(cls, path: Path, master_rows: int) -> None:
        """Write the data set that the contender reads, into an existing directory."""

    @abstractmethod
    def answer(self, batch: pa.RecordBatch) -> Answers:
        """Take one batch and return the answers available now."""

    @abstractmethod
    def drain(self) -> Answers:
        """Answer all pending rows; more batches follow."""

    @abstractmethod
    def finish(self) -> Answers:
        """Answer all pending rows; nothing follows."""

    @abstractmethod
    def close(self) -> None:
        """Release files and memory."""

    def metrics(self) -> dict[str, Any]:
        """The contender's own counters."""
        return {}


class Store(Contender):
    """A contender that answers at once, so that no row is ever pending."""

    def drain(self) -> Answers:
        """Nothing is pending."""
        return []

    def finish(self) -> Answers:
        """Nothing is pending."""
        return []
