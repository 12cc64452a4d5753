"""Two inputs, generated once and kept as Arrow files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from workloads import Records, Zipf

ROW_BYTES = 100
BATCH_ROWS = 50_000
KINDS = {
    "uniform": "both inputs draw their keys from as many values as they have rows",
    "zipf": "the left draws Zipf-1 keys, the right has every key once",
}


@dataclass(frozen=True)
class Generated:
    """Inputs with a given number of rows each.

    Attributes:
        kind: The distribution of their keys.
        rows: Rows of each input.
        seed: The seed of keys and payloads.
        folder: Where they are kept.
    """

    kind: str
    rows: int
    seed: int
    folder: Path

    def path(self, name: str) -> Path:
        """The file of an input."""
        kind = self.kind.replace(", ", "-")
        return self.folder / f"{kind}-{self.rows}-{self.seed}-{name}.arrow"


class Inputs(Generated):
    """Two inputs, of one of `KINDS`."""

    @property
    def bytes(self) -> int:
        """Bytes of both inputs."""
        return 2 * self.rows * ROW_BYTES

    def paths(self) -> tuple[Path, Path]:
        """The files of left and right, written unless they exist."""
        paths = self.path("left"), self.path("right")
        for side, path in enumerate(paths):
            if not path.exists():
                self._write(side, path)
        return paths

    def _write(self, side: int, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        records = Records(ROW_BYTES, seed=self.seed + side)
        keys = self._keys(side)
        unfinished = path.with_suffix(".unfinished")
        with pa.OSFile(str(unfinished), "wb") as file, pa.ipc.new_file(file, records.schema) as writer:
            for begin in range(0, self.rows, BATCH_ROWS):
                writer.write_batch(records.batch(keys[begin : begin + BATCH_ROWS]))
        unfinished.rename(path)

    def _keys(self, side: int) -> NDArray[np.int64]:
        if self.kind == "uniform":
            return Zipf(self.rows, 0.0, seed=self.seed + side).draw(self.rows)
        if side == 0:
            return Zipf(self.rows, 1.0, placement="random", seed=self.seed).draw(self.rows)
        return np.random.default_rng(self.seed).permutation(self.rows)


def open_table(path: Path) -> pa.Table:
    """The rows of an input, mapped into memory."""
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def in_turn(names: Sequence[str], paths: Sequence[Path]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Batches of all inputs in turn, as they arrive."""
    files = [pa.ipc.open_file(pa.memory_map(str(path))) for path in paths]
    for number in range(files[0].num_record_batches):
        for name, file in zip(names, files, strict=True):
            yield name, file.get_batch(number)
