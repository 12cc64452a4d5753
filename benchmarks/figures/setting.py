"""One point of a figure on a semi-stream join: the join, its inputs, its memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pyarrow as pa

from adjoin.master.device import Cost
from adjoin.master.master import Master
from adjoin.semistream.base.join import SemiStreamJoin
from benchmarks.figures.figure import World
from benchmarks.figures.simulation import PAPERS_DISK, Machine
from benchmarks.figures.variants import contender_named


class MasterSource(Protocol):
    """A master at any scale."""

    def open(self, world: World) -> Master: ...


class StreamSource(Protocol):
    """A stream at any scale."""

    def draw(self, world: World) -> pa.RecordBatch: ...


@dataclass(frozen=True)
class Setting:
    """A join of the paper.

    Attributes:
        algorithm: The operator's name.
        master: The master.
        stream: The stream.
        memory: The operator's memory, as a share of the master's pages.
        options: Options of the operator that are the same at every scale.
        scaled: Options that count rows and shrink with the data.
        seconds: Options that are times and shrink with the data too.
        finds_results: Whether rows are looked up on their pages, which a front stage needs.
        key: The key of stream and master.
        disk: What reading costs on the simulated machine.
    """

    algorithm: str
    master: MasterSource
    stream: StreamSource
    memory: float
    options: Mapping[str, Any] = field(default_factory=dict)
    scaled: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    finds_results: bool = False
    key: str | Mapping[str, str] = "key"
    disk: Cost = PAPERS_DISK

    def with_master(self, **changes: Any) -> "Setting":
        """The same with another master."""
        return replace(self, master=replace(self.master, **changes))  # type: ignore[type-var]

    def with_stream(self, **changes: Any) -> "Setting":
        """The same with another stream."""
        return replace(self, stream=replace(self.stream, **changes))  # type: ignore[type-var]

    def with_memory(self, share: float) -> "Setting":
        """The same with another memory."""
        return replace(self, memory=share)

    def with_options(self, **changes: Any) -> "Setting":
        """The same with other options that do not depend on the scale."""
        return replace(self, options={**self.options, **changes})

    def with_scaled(self, **changes: int) -> "Setting":
        """The same with other numbers of rows."""
        return replace(self, scaled={**self.scaled, **changes})

    def with_seconds(self, **changes: float) -> "Setting":
        """The same with other times."""
        return replace(self, seconds={**self.seconds, **changes})

    def operator(self, master: Master, world: World, machine: Machine) -> SemiStreamJoin:
        """The operator, on a machine.

        The budget does not include the master's index: ours takes 0.5 % of the master where the paper's inner
        nodes take 0.13 %, which would matter more than the algorithm in a memory of 1 %.
        """
        return contender_named(self.algorithm, finds_results=self.finds_results)(
            master,
            on=self.key,
            memory=int(self.memory * master.bytes),
            device=machine.device,
            clock=machine.clock,
            shared_index=True,
            **self.options,
            **{name: world.scaled(rows) for name, rows in self.scaled.items()},
            **{name: seconds / world.scale for name, seconds in self.seconds.items()},
        )
