"""TPC-H: orders and their lines as streams, customers and parts as masters."""

import math
import os
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from adjoin.errors import OptionError, ProgramError, StorageError
from workloads.records import BATCH_ROWS
from workloads.seeds import state_of
from workloads.zipf import Placement, Zipf

MasterTable = Literal["part", "customer"]

_PROGRAM = "tpchgen-cli"


@dataclass(frozen=True)
class _Pair:
    master_key: str
    stream_table: str
    stream_key: str
    stream_rows: int  # at scale 1; approximate for line items, of which an order has one to seven


_PAIRS = {
    "part": _Pair("p_partkey", "lineitem", "l_partkey", 6_000_000),
    "customer": _Pair("c_custkey", "orders", "o_custkey", 1_500_000),
}


class TPCH:
    """Part joined with LineItem, or Customer with Orders, with the benchmark's keys or skewed ones.

    How it works:
        The program `tpchgen-cli` writes a table to a Parquet file when it is first needed; later the file
        is read. With an exponent, the stream's key is replaced while it is read: each row gets the key of a
        Zipf rank. The other columns do not change.

    Args:
        directory: Where files are kept, by scale; created if necessary.
        master: "part" is joined with LineItem on partkey, "customer" with Orders on custkey.
        scale: The scale factor, above 0: 1 has 200,000 parts and 6 million line items, 150,000 customers and
            1.5 million orders.
        exponent: None keeps the keys of the benchmark, which are uniform over all parts and over two
            thirds of the customers; a number is the skew of new keys drawn over all of them.
        placement: As in `Zipf`.
        seed: The same seed gives the same skewed keys, whatever the batch sizes.

    Example:
        >>> tpch = TPCH("data", "part", scale=0.01, exponent=1.0, seed=7)
        >>> tpch.master_key, tpch.stream_key
        ('p_partkey', 'l_partkey')
        >>> tpch.stream(rows=1000, columns=["l_partkey"]).read_all().num_rows  # doctest: +SKIP
        1000

    Cost:
        Writing takes about a second per million line items on one core, and 40 bytes of disk for each.
        Reading is limited by decoding: all 16 columns of LineItem 4 million rows per second, few columns
        20 million.

    Reference:
        TPC Benchmark H, revision 3, section 4.2.3 (the columns).

    Departures:
        Skewed keys are independent of the other columns, and the price and supplier of a line item are those
        of its original part.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        master: MasterTable,
        *,
        scale: float = 1.0,
        exponent: float | None = None,
        placement: Placement = "random",
        seed: int = 0,
    ) -> None:
        if master not in get_args(MasterTable):
            raise OptionError(f"master={master!r}: choose one of {get_args(MasterTable)}")
        if not (math.isfinite(scale) and scale > 0):
            raise OptionError(f"scale={scale}: it must be above 0")
        if exponent is not None:
            Zipf(1, exponent, placement=placement)
        self._directory = Path(directory) / f"scale-{scale:g}"
        self._scale = scale
        self._master_table = master
        self._pair = _PAIRS[master]
        self._exponent = exponent
        self._placement = placement
        self._seed = seed

    @property
    def master_key(self) -> str:
        """The join column of the master."""
        return self._pair.master_key

    @property
    def stream_key(self) -> str:
        """The join column of the stream."""
        return self._pair.stream_key

    def master_path(self) -> Path:
        """The master's Parquet file, written unless it exists.

        Raises:
            ProgramError: `tpchgen-cli` is not installed, or has failed.
            StorageError: The directory cannot be written.
        """
        return self._written(self._master_table)

    def master(
        self, columns: Sequence[str] | None = None, batch_rows: int = BATCH_ROWS
    ) -> pa.RecordBatchReader:
        """The master in key order: 1, 2, 3 and so on. Raises like `master_path`."""
        return _reader(self.master_path(), columns, None, batch_rows)

    def stream(
        self, rows: int | None = None, columns: Sequence[str] | None = None, batch_rows: int = BATCH_ROWS
    ) -> pa.RecordBatchReader:
        """The stream in the order of the benchmark. Raises like `master_path`.

        Args:
            rows: The number of rows, None for all. Not much more of a large table is written.
            columns: Names of columns, None for all.
            batch_rows: The most rows of a batch.
        """
        path = self._stream_path(rows)
        there = pq.read_metadata(path).num_rows
        if rows is not None and rows > there:
            raise OptionError(f"rows={rows}: {self._pair.stream_table} has {there} at scale {self._scale:g}")
        reader = _reader(path, columns, rows, batch_rows)
        if self._exponent is None or self.stream_key not in reader.schema.names:
            return reader
        return pa.RecordBatchReader.from_batches(reader.schema, self._skewed(reader, self._exponent))

    def _skewed(self, reader: pa.RecordBatchReader, exponent: float) -> Iterator[pa.RecordBatch]:
        keys = pq.read_metadata(self.master_path()).num_rows
        seed = int(state_of(self._seed, self.stream_key)[0])
        zipf = Zipf(keys, exponent, placement=self._placement, seed=seed)
        place = reader.schema.get_field_index(self.stream_key)
        for batch in reader:
            drawn = pa.array(1 + zipf.draw(batch.num_rows))
            yield batch.set_column(place, reader.schema.field(place), drawn)

    def _stream_path(self, rows: int | None) -> Path:
        """The whole table, or its first part if that has enough rows."""
        table = self._pair.stream_table
        if rows is None or self._path(table).exists():
            return self._written(table)
        if rows < 0:
            raise OptionError(f"rows={rows}: it must be at least 0")
        wanted_rows = 1000 + rows + rows // 10  # orders differ in their number of lines
        return self._written(table, max(1, int(self._pair.stream_rows * self._scale) // wanted_rows))

    def _path(self, table: str, parts: int = 1) -> Path:
        return self._directory / (f"{table}.parquet" if parts == 1 else f"{table}-1-of-{parts}.parquet")

    def _written(self, table: str, parts: int = 1) -> Path:
        path = self._path(table, parts)
        if path.exists():
            return path
        first_part = [] if parts == 1 else ["--parts", str(parts), "--part", "1"]
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self._directory) as scratch:
                _generate("--scale-factor", f"{self._scale:g}", "--tables", table, *first_part, into=scratch)
                (file,) = Path(scratch).rglob("*.parquet")
                file.replace(path)
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error}") from error
        return path


def _generate(*options: str, into: str) -> None:
    program = Path(sysconfig.get_path("scripts")) / _PROGRAM
    if not program.exists():
        raise ProgramError(f"{program} does not exist: pip install 'adjoin[bench]'")
    command = [str(program), "parquet", *options, "--output-dir", into, "--quiet"]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    if ended.returncode:
        raise ProgramError(f"{' '.join(command)} ended with {ended.returncode}: {ended.stderr.strip()}")


def _reader(
    path: Path, columns: Sequence[str] | None, rows: int | None, batch_rows: int
) -> pa.RecordBatchReader:
    if batch_rows < 1:
        raise OptionError(f"batch_rows={batch_rows}: it must be at least 1")
    schema = pq.read_schema(path)
    unknown = sorted(set(columns or ()) - set(schema.names))
    if unknown:
        raise OptionError(f"columns={unknown}: {path.name} has {schema.names}")
    wanted = [field for field in schema if columns is None or field.name in columns]
    return pa.RecordBatchReader.from_batches(
        pa.schema(wanted, schema.metadata), _first_rows(path, columns, rows, batch_rows)
    )


def _first_rows(
    path: Path, columns: Sequence[str] | None, rows: int | None, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    left = math.inf if rows is None else rows
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_rows, columns=columns):
            if left <= 0:
                return
            yield batch if batch.num_rows <= left else batch.slice(0, int(left))
            left -= batch.num_rows
