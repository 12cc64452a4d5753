"""Disk use of a master, measured independently of its own upkeep."""

import os
from collections.abc import Iterable
from pathlib import Path

from adjoin.master.master import Master
from adjoin.master.versions import Home

SPARED_BYTES = 4 << 20
"""Any master may use this much, however small it is."""


def used_bytes(path: str | os.PathLike[str]) -> int:
    """All files of the master."""
    return sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())


def live_bytes(path: str | os.PathLike[str]) -> int:
    """Pages of the newest version, its index, filter and manifest, and headers and footers of its files."""
    home = Home(path)
    manifest = home.read_manifest(home.newest())
    total = os.path.getsize(home.manifest_path(manifest.version))
    for relation in manifest.relations():
        total += relation.bytes + os.path.getsize(os.path.join(home.index_dir, relation.index.name))
        total += sum(file.header_bytes + file.footer_bytes for file in relation.files)
        if relation.filter:
            total += os.path.getsize(os.path.join(home.index_dir, relation.filter.name))
    return total


def held_bytes(path: str | os.PathLike[str], open_versions: Iterable[int]) -> int:
    """Files of open versions, and of the version after each, that the newest does not have."""
    home = Home(path)
    there = set(home.versions())
    held = {version + step for version in open_versions for step in (0, 1)} & there - {max(there)}
    names = set().union(*(home.read_manifest(version).file_names() for version in held))
    names -= home.read_manifest(max(there)).file_names()
    found = (os.path.join(part, name) for name in names for part in home.file_dirs)
    size = sum(os.path.getsize(file) for file in found if os.path.exists(file))
    return size + sum(os.path.getsize(home.manifest_path(version)) for version in held)


def assert_bounded(path: str | os.PathLike[str], open_versions: Iterable[int]) -> None:
    """Disk use is at most twice the live bytes, plus what open versions hold."""
    allowed = max(2 * live_bytes(path), SPARED_BYTES) + held_bytes(path, open_versions)
    assert used_bytes(path) <= allowed


def named_and_present(master: Master) -> tuple[set[str], set[str]]:
    """The files that versions name, and the files that exist."""
    home = Home(master.path)
    return home.named_files(), {name for part in home.file_dirs for name in os.listdir(part)}
