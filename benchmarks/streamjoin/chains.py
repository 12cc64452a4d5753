"""Four streams joined as a chain: r1.a = r2.a, r2.b = r3.b, r3.c = r4.c."""

from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.streamjoin.inputs import ROW_BYTES, Generated
from workloads import Records, Zipf

BATCH_ROWS = 2_000
NAMES = ("r1", "r2", "r3", "r4")
KEYS = {"r1": ["a"], "r2": ["a", "b"], "r3": ["b", "c"], "r4": ["c"]}
ON = ("r1.a = r2.a", "r2.b = r3.b", "r3.c = r4.c")
KINDS = {
    "chain": "every relation draws all its keys from as many values as it has rows",
    "chain, near": "every relation has every key once; partners are up to 4 % of the stream apart",
}
_APART = 0.04


class Chain(Generated):
    """Four relations, of one of `KINDS`."""

    @property
    def bytes(self) -> int:
        """Bytes of all relations."""
        return len(NAMES) * self.rows * ROW_BYTES

    def paths(self) -> tuple[Path, ...]:
        """The files of the relations, written unless they exist."""
        paths = tuple(map(self.path, NAMES))
        for name, path in zip(NAMES, paths, strict=True):
            if not path.exists():
                self._write(name, path)
        return paths

    def _write(self, name: str, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        keys = {column: self._keys(name, column) for column in KEYS[name]}
        number = NAMES.index(name) + 1
        records = Records(ROW_BYTES - 8 * (len(keys) - 1), seed=self.seed + number)
        fields = {"key": KEYS[name][0], "row": f"row{number}", "payload": f"payload{number}"}
        unfinished, writer = path.with_suffix(".unfinished"), None
        with pa.OSFile(str(unfinished), "wb") as file:
            for begin in range(0, self.rows, BATCH_ROWS):
                some = {column: values[begin : begin + BATCH_ROWS] for column, values in keys.items()}
                batch = records.batch(some[KEYS[name][0]]).rename_columns(fields)
                for column in KEYS[name][1:]:
                    batch = batch.append_column(column, pa.array(some[column]))
                writer = writer or pa.ipc.new_file(file, batch.schema)
                writer.write_batch(batch)
            assert writer is not None
            writer.close()
        unfinished.rename(path)

    def _keys(self, name: str, column: str) -> NDArray[np.int64]:
        seed = self.seed + 10 * NAMES.index(name) + ord(column)
        if self.kind == "chain":
            return Zipf(self.rows, 0.0, seed=seed).draw(self.rows)
        lag = np.random.default_rng(seed).random(self.rows) * _APART * self.rows
        return np.argsort(np.arange(self.rows) + lag)
