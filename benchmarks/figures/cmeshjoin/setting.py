"""The paper on CMESHJOIN, and one point of its figures."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from adjoin.master.device import Cost
from adjoin.master.master import Master
from adjoin.semistream.algorithms import algorithm_named
from adjoin.semistream.meshjoin.cmeshjoin import CMeshJoin
from benchmarks.figures.cmeshjoin.data import Clouds, CustomerOrders, Synthetic
from benchmarks.figures.figure import Paper, Sweep, World
from benchmarks.figures.simulation import PAPERS_DISK, Machine

PAPER = Paper(
    name="cmeshjoin",
    citation=(
        "M. A. Naeem, G. Weber, G. Dobbie, C. Lutteroth: A Generic Front-Stage for Semi-Stream "
        "Processing, CIKM 2013"
    ),
    scale=200,
    setting=Path(__file__).with_name("setting.md").read_text(),
)

_LEAST_ROOM_BYTES = (64 << 10) + 17 * 8300
"""The share of a join's minimum memory for rows and pages; the paper does not count the rest of it."""


class FixedCache(CMeshJoin):  # type: ignore[misc, valid-type]
    """CMESHJOIN with a cache of a given size: rows are cached whether or not they are worth their memory."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._cache._times_worth = lambda _: lambda _: 0.0


@dataclass(frozen=True)
class CacheSetting:
    """A join of the paper, with the paper's sizes.

    Attributes:
        algorithm: The operator's name.
        data: Master and stream.
        memory: As a share of the master.
        memory_bytes: In bytes, if given.
        cache_share: The cache's share of the memory; None lets the join decide.
        model: Predict instead of measuring, with our row sizes ("here") or the paper's ("paper").
    """

    algorithm: str = "cmeshjoin"
    data: Synthetic | CustomerOrders | Clouds = field(default_factory=Synthetic)
    memory: float = 0.1
    memory_bytes: float | None = None
    cache_share: float | None = None
    model: str | None = None

    def with_(self, **changes: Any) -> "CacheSetting":
        """The same with other sizes."""
        return replace(self, **changes)

    def with_data(self, **changes: Any) -> "CacheSetting":
        """The same with other data."""
        return replace(self, data=replace(self.data, **changes))


@dataclass(frozen=True)
class Scaled:
    """A setting at a scale, which divides master, memory and the seek time of the disk."""

    setting: CacheSetting
    world: World

    @cached_property
    def master(self) -> Master:
        return self.setting.data.master(self.world)

    @property
    def disk(self) -> Cost:
        """What reading costs; INLJ reads a page per row at any scale."""
        scale = 1 if self.setting.algorithm == "inlj" else self.world.scale
        return Cost(PAPERS_DISK.positioning_seconds / scale, PAPERS_DISK.block_seconds)

    @property
    def memory(self) -> int:
        """Bytes for rows, cache and disk buffer."""
        if self.setting.memory_bytes is not None:
            return int(self.setting.memory_bytes / self.world.scale)
        return int(self.setting.memory * self.master.bytes)

    def operator(self, machine: Machine) -> Any:
        """The operator, on a machine."""
        share = self.setting.cache_share
        spare = self.memory - _LEAST_ROOM_BYTES
        make: Any = FixedCache if share is not None else algorithm_named(self.setting.algorithm)
        return make(
            self.master,
            on=self.setting.data.key,
            memory=spare + make.least_memory(self.master, shared_index=True),
            device=machine.device,
            clock=machine.clock,
            shared_index=True,
            **({} if share is None else {"front": share * self.memory / spare}),
        )


CMESHJOIN = CacheSetting()
MESHJOIN = CacheSetting("meshjoin")
INLJ = CacheSetting("inlj")

MEMORY_SWEEP: Sweep[CacheSetting] = Sweep(
    "memory, % of the master", (1, 2.5, 5, 10), lambda setting, x: setting.with_(memory=x / 100)
)
SKEW_SWEEP: Sweep[CacheSetting] = Sweep(
    "skew", (0.0, 0.25, 0.5, 0.75, 1.0), lambda setting, x: setting.with_data(skew=x)
)
