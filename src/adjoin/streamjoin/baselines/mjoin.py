"""MJoin: hash tables of all inputs, which lose the same bucket together."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin.arguments import whole_number
from adjoin.errors import OptionError
from adjoin.master.device import Cost
from adjoin.operators.clock import Clock
from adjoin.streamjoin.base.contract import SpillOptions
from adjoin.streamjoin.base.parts import FlushPolicy, Leaving, ReactiveWork, Shortage
from adjoin.streamjoin.base.phases import SpillingJoin
from adjoin.streamjoin.base.storage import Storage
from adjoin.streamjoin.baselines.partitions import PartitionPolicy, Partitions
from adjoin.streamjoin.manyway.many_join import ManyJoin, reactive_memory
from adjoin.streamjoin.manyway.spec import ManyInputs
from adjoin.streamjoin.memory.ordered_index import Entries


class MJoin(SpillingJoin):
    """Joins any number of streams in bounded memory; which tuples leave does not depend on their matches.

    How it works: see `SpillingJoin` for the phases. An arriving row probes one relation after the other, the
    most selective condition first. If all relations are joined on one key, the largest hash bucket leaves a
    full memory, in all inputs together (*coordinated flush*). In other joins pseudo-random tuples leave (the
    *naive extension*). There is no reactive phase.

    Args:
        relations: The schema of every input, by name.
        on: Conditions such as "r1.a = r2.b".
        memory: Budget of the whole operator: bytes, or a string such as "64MB".
        seed: Of the pseudo-random choice of tuples.
        columns: Columns of the results, `<relation>_<column>`; all by default.
        max_outer: Refused: there are no reactive phases.
        block_bytes, least_outer, max_new, wait_seconds, spill, clock, disk: See `SpillOptions`.

    Reference:
        Viglas, Naughton, Burger: Maximizing the Output Rate of Multi-Way Join Queries over Streaming
        Information Sources, VLDB 2003.

    Departures:
        - The cleanup phase is that of `MINER`.
    """

    def __init__(
        self,
        relations: Mapping[str, pa.Schema],
        on: Sequence[str],
        memory: int | str = "64MB",
        *,
        seed: int = 0,
        columns: Sequence[str] | None = None,
        block_bytes: int | None = None,
        max_outer: int | None = None,
        least_outer: int | None = None,
        max_new: int = 1000,
        wait_seconds: float = 0.025,
        spill: str | Path | None = None,
        clock: Clock | None = None,
        disk: Cost | None = None,
    ) -> None:
        seed = whole_number("seed", seed, 0)
        if max_outer is not None:
            raise OptionError("max_outer= is for MINER; MJoin does nothing while nothing arrives")
        spec = ManyInputs(relations, on, columns, scatters=True)
        options = SpillOptions(memory, block_bytes, 1, least_outer, max_new, wait_seconds, spill, clock, disk)
        storage = Storage(spec, options, reactive_memory(spec))
        policy: FlushPolicy = RandomFlush(seed)
        if spec.has_one_key:
            policy = CoordinatedFlush(Partitions.of_memory(storage.sizes.slots), len(spec))
        super().__init__(spec, storage, ManyJoin(spec, storage), policy, ReactiveWork())


class CoordinatedFlush(PartitionPolicy):
    """Flushes the largest bucket of all inputs together."""

    def choose(self, shortage: Shortage) -> Iterator[Leaving]:
        """All its tuples, of one input after the other."""
        partition = int(np.argmax(self.tuples.sum(axis=0)))
        for side in range(len(shortage.inputs)):
            yield from self.all_of(shortage, side, partition)


class RandomFlush(FlushPolicy):
    """Flushes pseudo-random tuples of a pseudo-random input.

    Args:
        seed: Of the choice.
    """

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def choose(self, shortage: Shortage) -> Iterator[Leaving]:
        """A block of them; an input with more tuples is more likely."""
        tuples = np.array([len(tuples) for tuples in shortage.inputs])
        side = int(self._random.choice(len(tuples), p=tuples / tuples.sum()))
        yield Leaving(side, self._sample(shortage.inputs[side].index.all(), shortage.rows[side]))

    def _sample(self, entries: Entries, count: int) -> Entries:
        first, second = entries
        chosen = np.sort(self._random.choice(entries.size, min(count, entries.size), replace=False))
        in_first = chosen < len(first)
        return Entries(first[chosen[in_first]], second[chosen[~in_first] - len(first)])

    def to_json(self) -> dict[str, Any]:
        """The state for a snapshot."""
        return {"random": self._random.bit_generator.state}

    def restore(self, saved: dict[str, Any]) -> None:
        """Continue from the state that `to_json` returned."""
        self._random.bit_generator.state = saved["random"]
