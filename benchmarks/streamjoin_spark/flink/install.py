"""`make flink`: get Flink's jars from Maven Central, or say why Flink is skipped.

The jars and the compiled program stay in `.flink`, which git ignores.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).resolve().parent
INSTALLED = _HERE.parents[2] / ".flink"
"""Where the jars are kept."""
_PROGRAM, _POM = _HERE / "StreamJoin.java", _HERE / "pom.xml"
_SECONDS = 900


class UnavailableError(Exception):
    """Flink cannot run on this machine; says why."""


@dataclass(frozen=True)
class Flink:
    """What it takes to run the program."""

    java: str
    class_path: str


def find() -> Flink:
    """Jars and compiled program, the latter compiled again where its source has changed."""
    jars, classes = INSTALLED / "jars", INSTALLED / "classes"
    if not (INSTALLED / "pom.xml").exists() or (INSTALLED / "pom.xml").read_text() != _POM.read_text():
        raise UnavailableError("the jars of Flink are not here; `make flink` may get them")
    compiled = classes / "StreamJoin.class"
    if not compiled.exists() or compiled.stat().st_mtime < _PROGRAM.stat().st_mtime:
        shutil.rmtree(classes, ignore_errors=True)
        _run(_executable("javac"), "-nowarn", "-cp", f"{jars}/*", "-d", str(classes), str(_PROGRAM))
    return Flink(_executable("java"), f"{classes}:{jars}/*")


def install() -> None:
    """Download the jars unless they are there."""
    if (INSTALLED / "pom.xml").exists() and (INSTALLED / "pom.xml").read_text() == _POM.read_text():
        return
    shutil.rmtree(INSTALLED, ignore_errors=True)
    INSTALLED.mkdir()
    options = (
        "-q",
        "-B",
        "-f",
        str(_POM),
        f"-DoutputDirectory={INSTALLED / 'jars'}",
        "-DincludeScope=runtime",
    )
    _run(_executable("mvn"), *options, "dependency:copy-dependencies")
    shutil.copy(_POM, INSTALLED)  # last: it says that the download is complete


def ensure() -> str:
    """One line: where Flink is, or why it is skipped."""
    try:
        install()
        find()
    except (UnavailableError, OSError) as error:
        return f"Flink skipped: {error}"
    return f"Flink: {INSTALLED}"


def _executable(name: str) -> str:
    """From the Java that is named, else from the path."""
    home = os.environ.get("JAVA_HOME")
    folders = [f"{home}/bin"] if home else []
    found = shutil.which(name, path=os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)]))
    if found is None:
        raise UnavailableError(f"there is no {name} on this machine")
    return found


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{command[0]} did not end within {_SECONDS} s") from error
    if done.returncode != 0:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise UnavailableError(
            f"{command[0]} ended with {done.returncode}: {said[0][:300] if said else 'no message'}"
        )


if __name__ == "__main__":
    print(ensure())
