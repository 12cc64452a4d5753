import math
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adjoin.arguments import local_path, names
from adjoin.errors import OptionError
from adjoin.master.master import Master
from adjoin.master.version_records import QueryRecords
from adjoin.memory.page_memory import PageFile
from adjoin.spark.page_memory.files import PageFiles
from adjoin.streamjoin.disk.spill_file import SpillFile

FOREIGN = [
    "hdfs://nn/m",
    "hdfs:/m",
    "s3://bucket/m",
    "s3a://bucket/m",
    "S3A://bucket/m",
    "gs://bucket/m",
    "abfss://container@account.dfs.core.windows.net/m",
    "dbfs:/m",
    "file://otherhost/m",
    Path("hdfs://nn/m"),
]
ROWS = pa.table({"id": [1, 2]})


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("file:///a/b", "/a/b"),
        ("FILE:///a", "/a"),
        ("file:/a/b", "/a/b"),
        ("file:////a", "/a"),
        ("file://localhost/a/b", "/a/b"),
        ("file:///my%20products/100%25", "/my products/100%"),
        ("file:///caf%C3%A9", "/café"),
        ("file:///%3Fa%23", "/?a#"),
        (Path("file:///a/b"), "/a/b"),
        ("/a/b%20c?#", "/a/b%20c?#"),
        ("a/b", "a/b"),
        ("2026-01-01T10:30/m", "2026-01-01T10:30/m"),
        ("backup:products", "backup:products"),
        ("./s3:/m", "./s3:/m"),
        (Path("a") / "b", "a/b"),
    ],
)
def test_local_paths(given: Any, path: str) -> None:
    assert local_path(given) == path


@pytest.mark.parametrize("given", FOREIGN)
def test_other_schemes_are_refused_before_anything_is_created(
    given: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    takes_a_path = [
        lambda: Master.build(ROWS, "id", given),
        lambda: Master.build(given, "id", tmp_path / "m"),
        lambda: Master.open(given),
        lambda: QueryRecords(given),
        lambda: SpillFile(given),
        lambda: PageFile(given, 1 << 20),
        lambda: PageFiles("o", 1, given).acquire(0, 1).__enter__(),
    ]
    for call in takes_a_path:
        with pytest.raises(OptionError, match="only local paths are supported"):
            call()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("given", ["", "a\0b", "file://localhost/%00", b"/a", 7, None])
def test_invalid_paths_are_refused(given: Any) -> None:
    with pytest.raises(OptionError, match="give a path"):
        Master.open(given)


@pytest.mark.parametrize("given", ["file:///a?b", "file:///a#b"])
def test_queries_and_fragments_must_be_escaped(given: str) -> None:
    with pytest.raises(OptionError, match="%3F"):
        Master.open(given)


def test_a_master_and_its_source_can_be_file_uris(tmp_path: Path) -> None:
    path = tmp_path / "my products"
    pq.write_table(ROWS, tmp_path / "rows of 2.parquet")
    uri = path.as_uri()
    assert "%20" in uri
    Master.build((tmp_path / "rows of 2.parquet").as_uri(), "id", uri).close()
    assert (path / "versions").is_dir()
    with Master.open(uri.replace("file:///", "file://localhost/")) as master:
        assert (master.path, master.rows) == (str(path), 2)


def test_a_page_file_can_be_a_file_uri(tmp_path: Path) -> None:
    with closing(PageFile((tmp_path / "my pages").as_uri(), 1 << 20)) as file:
        assert file.path == str(tmp_path / "my pages")
    assert (tmp_path / "my pages").is_file()


@pytest.mark.parametrize("most_bytes", [-1, 0, 0.5, "1MB", None, True, math.nan, 10**400])
def test_the_size_of_a_page_file_is_validated(most_bytes: Any, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="most_bytes="):
        PageFile(tmp_path / "pages", most_bytes)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("given", [np.array(1), 7, None, "id", b"id", {"id": 1}, [1], [None]])
def test_what_is_no_list_of_names_is_refused(given: Any) -> None:
    with pytest.raises(OptionError, match="must be a list of strings"):
        names("columns", given)
