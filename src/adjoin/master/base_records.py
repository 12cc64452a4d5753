"""Records of the version that each numbered change set is based on."""

import os
import uuid

from adjoin.master import files
from adjoin.master.version_records import VersionRecords
from adjoin.master.versions import Home

_NAMES = uuid.UUID("6c1f3f0e-6c0b-5b0a-9d55-8b1f0f3f7a11")


class BaseRecords(VersionRecords):
    """The records of one master: `bases/<id derived from the name>/<number>.json`.

    A change set is committed as the revision after its base; `vacuum` keeps both in case it is repeated.
    """

    def __init__(self, home: Home, master: str | None = None) -> None:
        super().__init__(home, os.path.join(home.path, "bases"), master)

    def base_for(self, name: str, number: int) -> int:
        """The base of this change set: the recorded one, or else the newest version, recording it."""
        return self.decide(_id_of(name), number, f"change set {(name, number)}")

    def find_base(self, name: str, number: int) -> int | None:
        """The recorded base of this change set, if any."""
        return self.find(_id_of(name), number)

    def drop(self, name: str, number: int) -> None:
        """Remove the base of a change set that was not committed, because another writer was faster."""
        path = self.path_of(_id_of(name), number)
        files.unlink(path)
        files.sync_dir(os.path.dirname(path))

    def pinned(self) -> set[int]:
        bases = super().pinned()
        following = (next_revision(self._home, base) for base in bases)
        return bases | {version for version in following if version is not None}


def next_revision(home: Home, base: int) -> int | None:
    """The first version after the base with other rows; those in between only moved pages."""
    revision: int | None = None
    for version in (version for version in home.versions() if version >= base):
        found = home.read_manifests([version])
        if version in found and revision is None:
            revision = found[version].revision
        elif version in found and found[version].revision != revision:
            return version
    return None


def _id_of(name: str) -> str:
    """A directory name: a change set can have any string as its name, a directory cannot."""
    return str(uuid.uuid5(_NAMES, name))
