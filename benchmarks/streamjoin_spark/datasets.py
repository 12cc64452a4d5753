"""Inputs on disk: a Parquet file per input and micro-batch, and the same rows as fixed-width records."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.engine.datasets import written_once
from benchmarks.streamjoin_spark.cases import Case
from benchmarks.streamjoin_spark.shapes import BOUND_SECONDS, OUT_OF_ORDER_SECONDS, ROW_BYTES, WITHIN

Columns = dict[str, NDArray[np.generic]]
_FIRST_SECOND = 1_700_000_000  # of the events, and of the files: Spark takes them by their modification times
_LATE_SHARE = 0.02  # payments that come after the bound: a contender that ignores it is found out
_LATE_SECONDS = 1800
_CELLS = 64  # a price is a multiple of 1/64
_SPAN_LENGTH, _LONG_SHARE, _LONG_TIMES = 1_000, 0.01, 100
_CHAIN_APART_BATCHES = 2.0
_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8)


@dataclass(frozen=True)
class Inputs:
    """The inputs of a case, and where they are kept."""

    data: Path
    case: Case
    seed: int

    @property
    def folder(self) -> Path:
        """Where they are, whether or not they exist."""
        case, keys = self.case, self.case.keys.replace(" ", "").replace("%", "percent")
        sizes = f"{case.batch_rows}-{case.batch_seconds}s-{case.all_batches}"
        return self.data / f"{case.shape}-{keys}-{sizes}-{self.seed}"

    def written(self) -> Path:
        """A folder with a folder of Parquet files for each input, written unless it exists."""
        self._check_room()
        return written_once(self.folder, self._write)

    def records(self) -> dict[str, Path]:
        """The same rows, a file of fixed-width records per input, for programs that read no Parquet."""
        source = self.written()

        def write() -> None:
            for name in self.case.join.inputs:
                with (target / f"{name}.records").open("wb") as file:
                    for path in sorted((source / name).glob("*.parquet")):
                        file.write(as_records(pq.read_table(path)))

        target = self.folder.with_name(f"{self.folder.name}-records")
        written_once(target, write)
        return {name: target / f"{name}.records" for name in self.case.join.inputs}

    def _check_room(self) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        rows = len(self.case.join.inputs) * self.case.all_batches * self.case.batch_rows
        need, free = 2 * rows * ROW_BYTES, shutil.disk_usage(self.data).free  # Parquet files and records
        if not self.folder.exists() and free < need:
            raise SystemExit(
                f"{self.folder} needs {need >> 20} MB of disk space, but only {free >> 20} MB are free: "
                f"make room, use another folder with --data, or leave it out with --skip {self.case.setting}"
            )

    def _write(self) -> None:
        rng = np.random.default_rng(self.seed)
        made = {
            "equality": _orders_and_payments,
            "band": _prices,
            "range": _points_and_spans,
            "chain": _chain,
        }
        for name, columns in made[self.case.shape](self.case, rng).items():
            _write_input(self.folder / name, name, columns, self.case, rng)


def as_records(table: pa.Table) -> bytes:
    """Rows of `ROW_BYTES` each: numbers and milliseconds as big-endian 64-bit integers, then the payload."""
    fields, columns = [], []
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        if pa.types.is_string(column.type):
            width = len(column[0].as_py())
            fields.append((name, f"S{width}"))
            columns.append(np.frombuffer(column.buffers()[2], f"S{width}", len(column)))
        else:
            stamps = column.cast(pa.timestamp("ms", "UTC")) if pa.types.is_timestamp(column.type) else column
            fields.append((name, ">i8"))
            columns.append(stamps.cast(pa.int64()).to_numpy())
    rows = np.empty(table.num_rows, np.dtype(fields))
    for (name, _), values in zip(fields, columns, strict=True):
        rows[name] = values
    return rows.tobytes()


def _write_input(folder: Path, name: str, columns: Columns, case: Case, rng: np.random.Generator) -> None:
    folder.mkdir()
    payload = case.join.columns(name)[-1]
    for number in range(case.all_batches):
        part = slice(number * case.batch_rows, (number + 1) * case.batch_rows)
        arrays = {column: pa.array(values[part]) for column, values in columns.items()}
        for column in case.join.times.values():
            if column in arrays:
                arrays[column] = arrays[column].cast(pa.timestamp("us", "UTC"))
        arrays[payload] = _text(case.batch_rows, ROW_BYTES - 8 * len(columns), rng)
        file = folder / f"{number:06d}.parquet"
        pq.write_table(pa.table(arrays), file, use_dictionary=False)
        os.utime(file, (_FIRST_SECOND + number, _FIRST_SECOND + number))


def _text(rows: int, width: int, rng: np.random.Generator) -> pa.StringArray:
    letters = _ALPHABET[rng.integers(0, len(_ALPHABET), rows * width, np.uint8)]
    offsets = np.arange(0, (rows + 1) * width, width, dtype=np.int32)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(letters))


def _microseconds(seconds: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    """Whole milliseconds, because that is what Flink's event times are, in microseconds."""
    return (_FIRST_SECOND * 1000 + np.floor(seconds * 1000).astype(np.int64)) * 1000


def _arrivals(seconds: NDArray[np.floating[Any]], rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The order in which events arrive: by their time, a little disturbed."""
    return np.argsort(seconds + rng.random(len(seconds)) * OUT_OF_ORDER_SECONDS, kind="stable")[:rows]


def _mixed(numbers: NDArray[np.int64], salt: int) -> NDArray[np.int64]:
    """Different 64-bit numbers for different numbers, in no order (the finalizer of SplitMix64)."""
    z = numbers.astype(np.uint64) + np.uint64(salt * 0x9E3779B97F4A7C15 % (1 << 64))
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))).view(np.int64)


def _orders_and_payments(case: Case, rng: np.random.Generator) -> dict[str, Columns]:
    """Every order is paid once; those paid at the beginning were ordered before the streams start."""
    rows, a_row = case.all_batches * case.batch_rows, case.batch_seconds / case.batch_rows
    before = round((BOUND_SECONDS + _LATE_SECONDS) / a_row)
    numbers = np.arange(-before, rows + case.batch_rows)
    ordered = numbers * a_row
    late = rng.random(len(numbers)) < _LATE_SHARE
    lag = rng.random(len(numbers)) * np.where(late, _LATE_SECONDS, BOUND_SECONDS - 0.001)
    paid = ordered + lag + np.where(late, BOUND_SECONDS + 0.001, 0.0)
    ids = _mixed(numbers + before, 1) if case.keys == "random" else numbers + before
    streamed, due = np.flatnonzero(ordered >= 0), np.flatnonzero(paid >= 0)
    first = streamed[_arrivals(ordered[streamed], rows, rng)]
    second = due[_arrivals(paid[due], rows, rng)]
    counted = np.arange(rows)
    return {
        "orders": {"order_id": ids[first], "ordered_at": _microseconds(ordered[first]), "order_row": counted},
        "payments": {"order_id": ids[second], "paid_at": _microseconds(paid[second]), "payment_row": counted},
    }


def _prices(case: Case, rng: np.random.Generator) -> dict[str, Columns]:
    """Uniform prices, as many that a bid meets one offer on average."""
    rows, a_row = case.all_batches * case.batch_rows, case.batch_seconds / case.batch_rows
    near = 2 * int(WITHIN * _CELLS) + 1
    prices = max(1, round(near * BOUND_SECONDS / a_row))

    def side(time: str, row: str) -> Columns:
        seconds = np.arange(rows + case.batch_rows) * a_row
        some = _arrivals(seconds, rows, rng)
        price = rng.integers(0, prices, rows) / _CELLS
        return {"price": price, time: _microseconds(seconds[some]), row: np.arange(rows)}

    return {"offers": side("offered_at", "offer_row"), "bids": side("bid_at", "bid_row")}


def _points_and_spans(case: Case, rng: np.random.Generator) -> dict[str, Columns]:
    """Uniform points and intervals, as many that a point meets one short interval on average."""
    rows = case.all_batches * case.batch_rows
    width = rows * _SPAN_LENGTH // 2
    lower, length = rng.integers(0, width, rows), rng.integers(0, _SPAN_LENGTH, rows)
    if case.keys == "1 % long":
        length = np.where(rng.random(rows) < _LONG_SHARE, length * _LONG_TIMES, length)
    counted = np.arange(rows)
    return {
        "points": {"position": rng.integers(0, width, rows), "point_row": counted},
        "spans": {"lower": lower, "upper": lower + length, "span_row": counted},
    }


def _chain(case: Case, rng: np.random.Generator) -> dict[str, Columns]:
    """Every relation has every key once; partners are a few micro-batches apart."""
    rows = case.all_batches * case.batch_rows
    inputs: dict[str, Columns] = {}
    for number, name in enumerate(case.join.inputs, 1):
        inputs[name] = {}
        for key in case.join.columns(name)[:-2]:
            apart = rng.random(rows) * _CHAIN_APART_BATCHES * case.batch_rows
            inputs[name][key] = _mixed(np.argsort(np.arange(rows) + apart), ord(key))
        inputs[name][f"row{number}"] = np.arange(rows)
    return inputs
