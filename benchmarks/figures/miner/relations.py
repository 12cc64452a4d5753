"""The relations of the figures: two with Zipf keys, the others around them with every key once."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.figures.figure import World
from benchmarks.figures.line import ROW_BYTES
from workloads import Records, Zipf

_ROWS, _KEYS = 100_000, 10_000
_LARGE = ("r2", "r3")


@dataclass(frozen=True)
class Relations:
    """Some of r1 to r6, and how they are joined.

    Attributes:
        on: The conditions. r2 and r3 are large, the others have every key once.
    """

    on: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The relations."""
        return tuple(sorted({end.strip().split(".")[0] for text in self.on for end in text.split("=")}))

    def draw(self, world: World) -> dict[str, pa.RecordBatch]:
        """Their rows."""
        return {name: self._rows(name, world) for name in self.names}

    def _columns(self, name: str) -> list[str]:
        ends = [end.strip().split(".") for text in self.on for end in text.split("=")]
        return sorted({column for relation, column in ends if relation == name})

    def _rows(self, name: str, world: World) -> pa.RecordBatch:
        columns, seed = self._columns(name), world.seed + 10 * int(name[1:])
        keys = [self._keys(name, world, seed + number) for number in range(len(columns))]
        records = Records(ROW_BYTES - 8 * (len(keys) - 1), seed=seed).batch(keys[0])
        batch = records.rename_columns({"key": columns[0]})
        for column, more in zip(columns[1:], keys[1:], strict=True):
            batch = batch.append_column(column, pa.array(more))
        return batch

    @staticmethod
    def _keys(name: str, world: World, seed: int) -> NDArray[np.int64]:
        keys = world.scaled(_KEYS)
        if name in _LARGE:
            zipf = Zipf(keys, 1.0, form="discrete", placement="noperm", seed=seed)
            return zipf.draw(world.scaled(_ROWS))
        return np.random.default_rng(seed).permutation(keys)


_CHAIN = ("r1.a = r2.a", "r2.b = r3.b", "r3.c = r4.c")
CHAINS = {2: Relations(_CHAIN[1:2]), 3: Relations(_CHAIN[:2]), 4: Relations(_CHAIN)}
ONE_KEY = Relations(("r1.a = r2.a", "r2.a = r3.a", "r3.a = r4.a"))
SNOWFLAKE = Relations((*_CHAIN, "r2.d = r5.d", "r3.e = r6.e"))
