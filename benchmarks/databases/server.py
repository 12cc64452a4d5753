"""A server process: run by an unprivileged user, in its own directory, ended by its process id."""

import os
import pwd
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.databases.programs import Programs, UnavailableError

_START_SECONDS = 60
_STOP_SECONDS = 30
_POLL_SECONDS = 0.02
_LOG_LINES = 15


class DatabaseError(Exception):
    """A system failed."""


class Server:
    """One server of a system, not started yet.

    Args:
        programs: The system's programs; copied if the server's user has no access to them.
        directory: The server's folder for data, socket and log, which must not exist yet.
    """

    def __init__(self, programs: Programs, directory: Path) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._account = _unprivileged()
        self.directory = directory
        if self._account and not _open_to_all(directory.parent):
            raise UnavailableError(f"the server's user has no access to {directory.parent}; use another one")
        self.folder("")
        needs_copy = self._account and not _open_to_all(programs.root)
        self.programs = programs.within(directory) if needs_copy else programs

    def folder(self, name: str) -> Path:
        """A new folder private to the server's user."""
        path = self.directory / name
        path.mkdir(mode=0o700)
        if self._account:
            os.chown(path, self._account["user"], self._account["group"])
        return path

    def prepare(self, name: str, *arguments: str) -> None:
        """Run a program to completion as the server's user."""
        process = self._spawn(name, *arguments)
        if process.wait() != 0:
            raise DatabaseError(f"{name} ended with {process.returncode}:\n{self._last_words()}")

    def start(self, name: str, *arguments: str, ready: Callable[[], bool]) -> None:
        """Start the server and wait until it answers."""
        self._process = self._spawn(name, *arguments)
        deadline = time.monotonic() + _START_SECONDS
        while not ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop(signal.SIGKILL)
                raise DatabaseError(f"{name} did not start:\n{self._last_words()}")
            time.sleep(_POLL_SECONDS)

    def stop(self, how: signal.Signals) -> None:
        """Stop the server, gracefully if it responds."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(how)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _spawn(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.directory / "log").open("ab") as log:
            try:
                return subprocess.Popen(
                    self.programs.command(name, *arguments),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.directory,
                    env=self.programs.environment(),
                    **self._account,
                )
            except PermissionError as error:
                raise UnavailableError(f"{name} cannot be run by an unprivileged user: {error}") from error

    def _last_words(self) -> str:
        lines = (self.directory / "log").read_text(errors="replace").splitlines()
        return "\n".join(lines[-_LOG_LINES:])


def _unprivileged() -> dict[str, Any]:
    """The user nobody instead of root, which servers refuse; any other user is kept."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _open_to_all(path: Path) -> bool:
    return all(folder.stat().st_mode & 0o001 for folder in (path, *path.resolve().parents))
