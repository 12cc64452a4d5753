"""Conversion of masters of an older format to the current one."""

import os
from contextlib import ExitStack
from typing import Any

from adjoin.errors import ConflictError
from adjoin.master import files
from adjoin.master.build import write_index
from adjoin.master.filter import KeyFilter
from adjoin.master.index import PageIndex
from adjoin.master.manifest import FORMAT, Manifest, new_id, read_saved
from adjoin.master.verify import index_path, read_verified
from adjoin.master.versions import Home


def migrate(home: Home) -> list[int]:
    """Rewrite manifests and indexes of format 1 in the current format; returns the versions concerned.

    Data files stay as they are, and versions keep their numbers, so that records of queries remain valid.
    After a crash some versions are migrated; running it again migrates the others.
    """
    home.newest()
    with ExitStack() as stack:
        stack.enter_context(_exclusive(home, home.lock_path))
        old: dict[int, dict[str, Any]] = {}
        known = None
        for version in home.versions():
            path = home.manifest_path(version)
            stack.enter_context(_exclusive(home, path))
            saved = read_saved(path, files.read_file(path))
            if saved["format"] == 1:
                old[version] = saved
            elif saved["format"] == FORMAT:
                known = saved["id"]
        # All versions of a master have the same id.
        id_ = known or new_id()
        replaced: set[str] = set()
        for version, saved in old.items():
            replaced |= _migrate_version(home, version, saved, id_)
        # Versions can share an index, so the old ones are removed last.
        for name in replaced:
            files.discard(os.path.join(home.index_dir, name))
    return list(old)


def _exclusive(home: Home, path: str) -> files.Lock:
    files.make_lock_file(home.lock_path)
    lock = files.lock_file(path, exclusive=True)
    if lock is None:
        raise ConflictError(
            f"{path} is in use: stop the queries and programs that use {home.path}, and migrate it then"
        )
    return lock


def _migrate_version(home: Home, version: int, saved: dict[str, Any], id_: str) -> set[str]:
    """Replace the manifest of a version; returns the names of the files that it no longer needs."""
    path = home.manifest_path(version)
    before = Manifest.from_first_format(path, saved, home.data_dir, id_)
    index = PageIndex.from_first_format(read_verified(index_path(home, before.index), before.index))
    key_filter = None
    if before.filter is not None:
        data = read_verified(index_path(home, before.filter), before.filter)
        key_filter = KeyFilter.from_first_format(data, before.filter.capacity)
    created: list[str] = []
    temporary = home.temporary(".json")
    try:
        index_file, filter_file = write_index(home, index, key_filter, created)
        after = before.with_pages(index, before.files, index_file, filter_file)
        files.write_file(temporary, after.to_bytes())
        files.replace(temporary, path)
        files.sync_dir(home.versions_dir)
    except BaseException:
        if read_saved(path, files.read_file(path))["format"] == 1:
            for leftover in (temporary, *created):
                files.discard(leftover)
        raise
    return before.file_names() - after.file_names()
