"""Where the programs of a database system lie."""

import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

INSTALLED = Path(__file__).resolve().parents[2] / ".databases"
"""Where `make databases` puts what the machine does not have."""

_SYSTEM_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/usr/bin", "/usr/local/bin")
_DEBIAN_POSTGRESQL = Path("/usr/lib/postgresql")


class UnavailableError(Exception):
    """A system that cannot run on this machine, and why."""


@dataclass(frozen=True)
class Programs:
    """The programs of one system.

    Attributes:
        root: The folder in whose `bin` and `sbin` they lie.
        home: The folder that holds all that they need, or None where they belong to the machine.
    """

    root: Path
    home: Path | None = None

    def path(self, name: str) -> Path | None:
        """The program, if it is there."""
        for folder in ("bin", "sbin"):
            if (program := self.root / folder / name).exists():
                return program
        return None

    def command(self, name: str, *arguments: str) -> list[str]:
        """The command that runs a program that is known to be there."""
        return [str(self.path(name)), *arguments]

    def environment(self) -> dict[str, str]:
        """What the programs see: no setting of the caller, and the libraries that were unpacked with them."""
        libraries = self.root.glob("lib/*-linux-*") if self.home else ()
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "LC_ALL": "C",
            "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
        }

    def within(self, directory: Path) -> "Programs":
        """A copy in a directory, for a user who cannot enter the place where they are."""
        if self.home is None:
            raise UnavailableError(f"the server's user cannot enter {self.root}")
        home = directory / "programs"
        shutil.copytree(self.home, home, symlinks=True)
        return Programs(home / self.root.relative_to(self.home), home)


def find_postgresql() -> Programs:
    """The newest PostgreSQL of the machine, else the one that was installed for us."""
    versions = sorted(_DEBIAN_POSTGRESQL.glob("*"), key=_version, reverse=True)
    home = INSTALLED / "postgresql"
    candidates = [
        *map(Programs, [*_on_path("postgres"), *versions]),
        *(Programs(root, home) for root in home.glob("*/pginstall")),
    ]
    return _first(candidates, "postgres", "initdb", "psql")


def find_mariadb() -> Programs:
    """MariaDB of the machine, else the one that was installed for us."""
    home = INSTALLED / "mariadb"
    candidates = [*map(Programs, _on_path("mariadbd")), Programs(home / "usr", home)]
    return _first(candidates, "mariadbd", "mariadb")


def _first(candidates: Iterable[Programs], *needed: str) -> Programs:
    for programs in candidates:
        if all(programs.path(name) for name in needed):
            return programs
    raise UnavailableError(f"{', '.join(needed)} are not on this machine; `make databases` may get them")


def _on_path(server: str) -> Iterator[Path]:
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_SYSTEM_FOLDERS])
    if found := shutil.which(server, path=path):
        yield Path(found).resolve().parents[1]


def _version(folder: Path) -> int:
    return int(folder.name) if folder.name.isdigit() else 0
