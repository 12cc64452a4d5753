"""Tables and masters for the tests of the master."""

import datetime as dt
import os
import random
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin.master.build import BuildOptions, build
from adjoin.master.data_file import read_pages
from adjoin.master.master import Master
from adjoin.master.progress import Progress
from adjoin.master.versions import Home

INSTANT = dt.datetime(2024, 2, 29, 12, 30, 15)  # noqa: DTZ001 (timestamps without a time zone exist)


def rows_of(master: Master) -> pa.Table:
    """The user's columns of all pages, in index order."""
    pages = np.arange(master.pages)
    return read_pages(master.stored, master.files, master.index, pages).select(master.schema.names)


def stored_rows(master: Master) -> pa.Table:
    """The same rows, read from the data files with nothing but pyarrow."""
    tables = [pa.ipc.open_file(file.path).read_all() for file in master.files]
    return pa.concat_tables(tables) if tables else master.stored_schema.empty_table()


def build_master(source: Any, key: str | Sequence[str], path: Path | str, **options: Any) -> Master:
    """Like Master.build, with the options that exist only for tests."""
    build(source, key, Home(path), BuildOptions(**options), Progress(False))
    return Master.open(path)


def multiset(table: pa.Table) -> list[str]:
    return sorted(map(repr, zip(*(column.to_pylist() for column in table.columns), strict=True)))


def products(rows: int, seed: int = 0, *, space: int | None = None, text_bytes: int = 40) -> pa.Table:
    draw = np.random.default_rng(seed)
    keys = draw.permutation(rows) if space is None else draw.integers(0, space, rows)
    names = [
        None if key % 11 == 3 else "x" * int(size)
        for key, size in zip(keys, draw.integers(0, text_bytes, rows), strict=True)
    ]
    return pa.table(
        {"id": pa.array(keys, pa.int64()), "name": pa.array(names, pa.string()), "price": draw.random(rows)}
    )


def changes(rows: Sequence[tuple[str, Any, Any]], key_type: pa.DataType) -> pa.Table:
    """A change set with columns `key` and `value`, from the operation, key and value of each change."""
    operation, key, value = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {
            "_op": pa.array(operation, pa.string()),
            "value": pa.array(value, pa.string()),
            "key": pa.array(key, key_type),
        }
    )


def files_below(path: Path | str) -> list[str]:
    return sorted(os.path.join(base, name) for base, _, names in os.walk(path) for name in names)


def _values(count: int) -> dict[str, tuple[pa.DataType, list[Any]]]:
    """Some values, without nulls, of every type that a master stores."""
    draw = random.Random(7)
    numbers = [draw.randrange(-100, 100) for _ in range(count)]
    words = ["é" * (number % 5) + str(number) for number in numbers]
    days = [INSTANT.date() + dt.timedelta(days=number) for number in numbers]
    instants = [INSTANT + dt.timedelta(seconds=number) for number in numbers]
    times = [dt.time(abs(number) % 24, 5, 1) for number in numbers]
    lists = [[number] * (abs(number) % 4) for number in numbers]
    pairs = [{"a": number, "b": word, "c": [word, None]} for number, word in zip(numbers, words, strict=True)]
    maps = [[(word, number)] * (abs(number) % 3) for number, word in zip(numbers, words, strict=True)]
    values: dict[str, tuple[pa.DataType, list[Any]]] = {
        f"int{bits}": (getattr(pa, f"int{bits}")(), numbers) for bits in (8, 16, 32, 64)
    }
    values |= {
        f"uint{bits}": (getattr(pa, f"uint{bits}")(), [abs(n) for n in numbers]) for bits in (8, 16, 32, 64)
    }
    values |= {"half": (pa.float16(), [np.float16(number / 4) for number in numbers])}
    values |= {"float": (pa.float32(), [number / 4 for number in numbers])}
    values |= {"double": (pa.float64(), [number / 3 for number in numbers])}
    for maker, digits in (("decimal128", 20), ("decimal256", 60), ("decimal32", 7), ("decimal64", 15)):
        if hasattr(pa, maker):
            values[maker] = (getattr(pa, maker)(digits, 2), [Decimal(number) / 4 for number in numbers])
    values |= {
        "bool": (pa.bool_(), [number % 2 == 0 for number in numbers]),
        "string": (pa.string(), words),
        "large_string": (pa.large_string(), words),
        "binary": (pa.binary(), [word.encode() for word in words]),
        "large_binary": (pa.large_binary(), [word.encode() for word in words]),
        "fixed_binary": (pa.binary(3), [f"{abs(number):03d}"[-3:].encode() for number in numbers]),
        "date32": (pa.date32(), days),
        "date64": (pa.date64(), days),
        "time32": (pa.time32("s"), times),
        "time64": (pa.time64("us"), times),
        "timestamp": (pa.timestamp("us"), instants),
        "timestamp_tz": (pa.timestamp("ms", "Europe/Athens"), instants),
        "duration": (pa.duration("ms"), [dt.timedelta(seconds=number) for number in numbers]),
        "interval": (pa.month_day_nano_interval(), [pa.MonthDayNano([number, 2, 3]) for number in numbers]),
        "list": (pa.list_(pa.int32()), lists),
        "large_list": (pa.large_list(pa.string()), [[str(item) for item in items] for items in lists]),
        "fixed_list": (pa.list_(pa.int16(), 2), [[number, None] for number in numbers]),
        "struct": (pa.struct([("a", pa.int8()), ("b", pa.string()), ("c", pa.list_(pa.string()))]), pairs),
        "map": (pa.map_(pa.string(), pa.int64()), maps),
        "lists_of_structs": (pa.list_(pa.struct([("a", pa.bool_()), ("m", pa.map_(pa.int8(), pa.date32()))])),
                             [[{"a": True, "m": [(number, days[0])]}, None] for number in numbers]),
        "fixed_of_lists": (pa.list_(pa.list_(pa.string()), 2), [[[word], []] for word in words]),
        "null": (pa.null(), [None] * count),
    }  # fmt: skip
    return values


TYPE_NAMES = sorted(_values(0))


def typed_column(name: str, count: int, *, nulls: bool) -> pa.Array:
    type_, values = _values(count)[name]
    if nulls:
        values = [None if at % 3 == 1 else value for at, value in enumerate(values)]
    return pa.array(values, type_)
