"""Finds the programs of a database system."""

import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

INSTALLED = Path(__file__).resolve().parents[2] / ".databases"
"""Where `make databases` installs what the machine lacks."""

_SYSTEM_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/usr/bin", "/usr/local/bin")
_DEBIAN_POSTGRESQL = Path("/usr/lib/postgresql")


class UnavailableError(Exception):
    """A system cannot run on this machine; says why."""


@dataclass(frozen=True)
class Programs:
    """The programs of one system.

    Attributes:
        root: The folder with their `bin` and `sbin`.
        home: The folder with everything they need, or None if they belong to the machine.
    """

    root: Path
    home: Path | None = None

    def path(self, name: str) -> Path | None:
        """The program, if it exists."""
        for folder in ("bin", "sbin"):
            if (program := self.root / folder / name).exists():
                return program
        return None

    def command(self, name: str, *arguments: str) -> list[str]:
        """The command that runs a program known to exist."""
        return [str(self.path(name)), *arguments]

    def environment(self) -> dict[str, str]:
        """The programs' environment: none of the caller's settings, and the libraries unpacked with them."""
        libraries = self.root.glob("lib/*-linux-*") if self.home else ()
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "LC_ALL": "C",
            "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
        }

    def within(self, directory: Path) -> "Programs":
        """A copy in this directory, for a user who has no access to the original."""
        if self.home is None:
            raise UnavailableError(f"the server's user has no access to {self.root}")
        home = directory / "programs"
        shutil.copytree(self.home, home, symlinks=True)
        return Programs(home / self.root.relative_to(self.home), home)


def find_postgresql() -> Programs:
    """The newest PostgreSQL of the machine, else the one from `make databases`."""
    versions = sorted(_DEBIAN_POSTGRESQL.glob("*"), key=_version, reverse=True)
    home = INSTALLED / "postgresql"
    candidates = [
        *map(Programs, [*_on_path("postgres"), *versions]),
        *(Programs(root, home) for root in home.glob("*/pginstall")),
    ]
    return _first(candidates, "postgres", "initdb", "psql")


def find_mariadb() -> Programs:
    """The machine's MariaDB, else the one from `make databases`."""
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
