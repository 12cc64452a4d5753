"""Which version each numbered change set starts from."""

import os
import uuid

from adjoin.master import files
from adjoin.master.queries import QueryRecords
from adjoin.master.versions import Home

_NAMES = uuid.UUID("6c1f3f0e-6c0b-5b0a-9d55-8b1f0f3f7a11")


class BaseRecords(QueryRecords):
    """The records of one master: `bases/<id made from the name>/<number>.json`.

    A change set is committed as the version after its base, so `vacuum` keeps both for a repetition.
    """

    def __init__(self, home: Home | str | os.PathLike[str]) -> None:
        super().__init__(home)
        self._root = os.path.join(self._home.path, "bases")

    def base_for(self, name: str, number: int) -> int:
        """The version that this change set starts from: as recorded, else the newest, which is recorded."""
        return self.version_for(_id_of(name), number)

    def drop(self, name: str, number: int) -> None:
        """Forget the base of a change set that another writer has overtaken; nothing came of it."""
        directory = self.directory(_id_of(name))
        files.unlink(f"{directory}/{number:020d}.json")
        files.sync_dir(directory)

    def pinned(self) -> set[int]:
        bases = super().pinned()
        return bases | {version + 1 for version in bases}


def _id_of(name: str) -> str:
    """Any text can be a name, not every text can be the name of a directory."""
    return str(uuid.uuid5(_NAMES, name))
