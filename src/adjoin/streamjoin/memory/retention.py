"""Tuples of all inputs in one budget: what comes is kept, and what brings least goes to disk for it."""

from collections.abc import Callable, Sequence

import pyarrow as pa

from adjoin.arrow.copying import compact
from adjoin.arrow.row_sizes import row_bytes
from adjoin.kernels.types import Array
from adjoin.memory.budget import MemoryBudget
from adjoin.operators.portions import portions
from adjoin.streamjoin.base.counts import Counts
from adjoin.streamjoin.base.sizes import Sizes
from adjoin.streamjoin.base.stamps import Stamps
from adjoin.streamjoin.disk.blocks import Blocks
from adjoin.streamjoin.disk.idle_work import Reactive
from adjoin.streamjoin.memory.flush_policy import FlushPolicy, Leaving, Shortage
from adjoin.streamjoin.memory.tuples import Keys, Tuples


class Keeping:
    """Keeps tuples in memory as far as the budget allows, the others in blocks on disk.

    Args:
        inputs: What of each input is in memory.
        blocks: What of each input is on disk.
        policy: Chooses the tuples that leave memory.
        reactive: Is told of what comes and of what was written.
        stamps: Gives moments.
        budget: The operator's budget; this class keeps its account "tuples".
        sizes: How it is divided.
        counts: Where blocks are counted.
        has_ended: Whether each input has, by now; once one alone is left, its tuples leave first.

    Attributes:
        input_bytes: So much memory is for rows that come while the operator works.
    """

    def __init__(
        self,
        inputs: Sequence[Tuples],
        blocks: Sequence[Blocks],
        policy: FlushPolicy,
        reactive: Reactive,
        stamps: Stamps,
        budget: MemoryBudget,
        sizes: Sizes,
        counts: Counts,
        has_ended: list[bool],
    ) -> None:
        self._inputs = inputs
        self._blocks = blocks
        self._policy = policy
        self._reactive = reactive
        self._stamps = stamps
        self._budget = budget
        self._sizes = sizes
        self._counts = counts
        self._placing: tuple[int, pa.RecordBatch, Keys] | None = None
        self._has_ended = has_ended
        self.input_bytes = 0
        self.account()

    @property
    def is_behind(self) -> bool:
        """Whether tuples are still to be kept, because the disk had no room."""
        return self._placing is not None

    def expect(self, side: int, stored: pa.RecordBatch, keys: Keys) -> None:
        """Tuples, in the order of the first attribute's lower ends, that `catch_up` will keep."""
        self._placing = side, stored, keys

    def has_room_for(self, side: int, stored: pa.RecordBatch) -> bool:
        """Whether these can be kept without that others leave."""
        return self._has_room(side, row_bytes(stored))

    def catch_up(self) -> None:
        """Keep the tuples that are expected, after others have left for them."""
        if self._placing is None:
            return
        side, stored, keys = self._placing
        sizes, room_bytes = row_bytes(stored), self._inputs[side].slots.room_bytes
        for begin, end in portions(sizes + self._blocks[side].key_bytes, room_bytes):
            self._make_room(side, sizes[begin:end])
            some = [(low[begin:end], high[begin:end]) for low, high in keys]
            self._inputs[side].add(stored.slice(begin, end - begin), some)
            self._policy.added(side, some)
            self._reactive.arrived(side, some[0][0])
            self._placing = side, stored.slice(end), [(low[end:], high[end:]) for low, high in keys]
            self.account()
        self._placing = None

    def _make_room(self, side: int, sizes: Array) -> None:
        """Let tuples leave until there is room for rows of these sizes."""
        self._free_while(lambda: not self._has_room(side, sizes))
        assert self._has_room(side, sizes), "a block of rows always has room when all others have left"

    def _free_while(self, is_short: Callable[[], bool]) -> None:
        """Close up, and let tuples leave, until it is enough or none is left."""
        while is_short() and any(map(len, self._inputs)):
            if not self._close_up():
                self.make_room()

    def _has_room(self, side: int, sizes: Array) -> bool:
        return not self._lacks(self._inputs[side].new_bytes(sizes))

    @property
    def _reading_bytes(self) -> int:
        """What is to be set aside for reactive phases; nothing once there was one."""
        return self._sizes.reading_bytes - self._budget.account("reading")

    def _lacks(self, more_bytes: int) -> bool:
        return more_bytes + self.spare_bytes + self.input_room_bytes > self._budget.free_bytes

    @property
    def input_room_bytes(self) -> int:
        """What is left of the memory for rows that come while the operator works."""
        return max(0, self.input_bytes - self._budget.account("input"))

    @property
    def lacks_room_for_input(self) -> bool:
        """Whether tuples are in the place of rows that come while the operator works."""
        return self.input_bytes > 0 and any(map(len, self._inputs)) and self._lacks(0)

    def make_room_for_input(self) -> None:
        """Let tuples leave until there is room for rows that come while the operator works."""
        self._free_while(lambda: self._lacks(0))

    @property
    def spare_bytes(self) -> int:
        """Always left: a slot to close up with."""
        return self._sizes.slot_bytes

    def _close_up(self) -> bool:
        done = any(tuples.close_up() for tuples in sorted(self._inputs, key=len, reverse=True))
        self.account()
        return done

    def makes_room_for_reading(self) -> bool:
        """Whether memory for reactive phases had to be set aside, for which a block of tuples has left.

        That is asked until there is enough: new rows are not kept waiting until many tuples have left.
        """
        if not self._reading_bytes:
            return False
        has_left = self._lacks(self._reading_bytes) and any(map(len, self._inputs))
        if has_left and not self._close_up():
            self.make_room()
        spare_bytes = self._budget.free_bytes - self.spare_bytes - self.input_room_bytes
        more_bytes = min(self._reading_bytes, max(spare_bytes, 0)) if has_left else self._reading_bytes
        self._budget.add("reading", more_bytes)
        return has_left

    def block_rows(self, side: int) -> int:
        """About so many tuples of a side are a block."""
        return self._inputs[side].rows_of_a_slot(self._blocks[side].key_bytes)

    def make_room(self) -> None:
        """Let the policy choose tuples that leave."""
        rows = [self.block_rows(side) for side in range(len(self._inputs))]
        for leaving in self._policy.choose(Shortage(self._inputs, rows, self._unasked())):
            self.write(leaving)

    def _unasked(self) -> int | None:
        """The input with tuples that nothing will ask for any more: all others have ended."""
        coming = [side for side, has_ended in enumerate(self._has_ended) if not has_ended]
        return coming[0] if len(coming) == 1 and len(self._inputs[coming[0]]) else None

    def write(self, leaving: Leaving) -> None:
        """Write tuples to disk, in as many blocks as they need, and remove them from memory."""
        side = leaving.side
        tuples, blocks = self._inputs[side], self._blocks[side]
        entries = tuples.everywhere(leaving.attribute, leaving.entries)
        place, low, high = tuples.index.places(entries[0])
        keys = [low, *(index.keys(some) for index, some in zip(tuples.indexes[1:], entries[1:], strict=True))]
        rows = tuples.rows_at(place)
        before, mark = len(blocks), blocks.mark()
        try:
            for begin, end in portions(row_bytes(rows) + blocks.key_bytes, tuples.slots.room_bytes):
                part = compact(rows.slice(begin, end - begin))
                blocks.append(part, low[begin:end], high[begin:end], self._stamps.next())
        except BaseException:
            blocks.undo(mark)
            raise
        tuples.remove(entries)
        self._counts.blocks_flushed += len(blocks) - before
        self._policy.flushed(side, keys, tuples)
        self._reactive.flushed(side, range(before, len(blocks)))
        while self._is_over() and tuples.close_up():
            continue
        self.account()

    def _is_over(self) -> bool:
        """Whether notes on holes need more than there is, until slots are emptied."""
        return self._held_bytes() - self._budget.account("tuples") > self._budget.free_bytes

    def write_all(self) -> None:
        """Write all tuples to disk."""
        for side, tuples in enumerate(self._inputs):
            while len(tuples):
                self.write(Leaving(side, tuples.index.lowest(self.block_rows(side))))

    def _held_bytes(self) -> int:
        held = sum(tuples.held_bytes for tuples in self._inputs)
        return held + max(tuples.merge_bytes for tuples in self._inputs)

    def account(self) -> None:
        """Let the budget know what is held now."""
        self._budget.set("tuples", self._held_bytes())

    def check_invariants(self) -> None:
        """Raise AssertionError if a structure contradicts itself or its account."""
        for tuples, blocks in zip(self._inputs, self._blocks, strict=True):
            tuples.check_invariants()
            blocks.check_invariants()
        self._policy.check_invariants(self._inputs)
        assert self._budget.account("tuples") >= self._held_bytes()
