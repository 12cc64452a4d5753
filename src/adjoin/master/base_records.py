"""Which version each numbered change set starts from."""

import os
import uuid

from adjoin.master import files
from adjoin.master.version_records import VersionRecords
from adjoin.master.versions import Home

_NAMES = uuid.UUID("6c1f3f0e-6c0b-5b0a-9d55-8b1f0f3f7a11")


class BaseRecords(VersionRecords):
    """The records of one master: `bases/<id made from the name>/<number>.json`.

    A change set is committed as the revision after its base, so `vacuum` keeps both for a repetition.
    """

    def __init__(self, home: Home, master: str | None = None) -> None:
        super().__init__(home, os.path.join(home.path, "bases"), master)

    def base_for(self, name: str, number: int) -> int:
        """The version that this change set starts from: as recorded, else the newest, which is recorded."""
        return self.decide(_id_of(name), number, f"change set {(name, number)}")

    def find_base(self, name: str, number: int) -> int | None:
        """The version that this change set starts from, if it is recorded."""
        return self.find(_id_of(name), number)

    def drop(self, name: str, number: int) -> None:
        """Forget the base of a change set that another writer has overtaken; nothing came of it."""
        path = self.path_of(_id_of(name), number)
        files.unlink(path)
        files.sync_dir(os.path.dirname(path))

    def pinned(self) -> set[int]:
        bases = super().pinned()
        following = (next_revision(self._home, base) for base in bases)
        return bases | {version for version in following if version is not None}


def next_revision(home: Home, base: int) -> int | None:
    """The first version after the base that has other rows; versions between have only moved pages."""
    revision: int | None = None
    for version in (version for version in home.versions() if version >= base):
        found = home.read_manifests([version])
        if version in found and revision is None:
            revision = found[version].revision
        elif version in found and found[version].revision != revision:
            return version
    return None


def _id_of(name: str) -> str:
    """Any text can be a name, not every text can be the name of a directory."""
    return str(uuid.uuid5(_NAMES, name))
