import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.streamjoin_spark import resident
from benchmarks.streamjoin_spark.child import Done, run
from benchmarks.streamjoin_spark.flink import install
from benchmarks.streamjoin_spark.resident import Resident

PARENT = """
import subprocess, sys
kept = bytearray(b"x") * (40 << 20)
code = "import sys; kept = bytearray(b'x') * (60 << 20); print('full', flush=True); sys.stdin.read()"
child = subprocess.Popen([sys.executable, "-c", code])
child.wait()
"""


def test_memory_of_a_process_includes_that_of_what_it_started():
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"full\n"
        used = resident.resident(parent.pid)
        parent.communicate(b"")
    assert used.java == 0
    assert 100 << 20 < used.all < 160 << 20


def test_peak_and_growth_are_those_of_what_was_seen():
    seen = [Resident(java, 10) for java in (0, 900, 90, 90, 190, 190, 90, 90)]
    memory = Done(0, "", "", seen).memory()
    assert memory == {"peak_bytes": 910, "peak_java_bytes": 900, "memory_growth": 0.5}
    assert Done(0, "", "", []).memory() == {"peak_bytes": 0, "peak_java_bytes": 0}


def test_a_child_says_what_it_said_and_how_it_ended():
    done = run([sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"])
    assert (done.code, done.output, done.errors) == (3, "out\n", "err\n")


def test_flink_without_its_jars_is_skipped_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(install, "INSTALLED", tmp_path / ".flink")
    with pytest.raises(install.UnavailableError, match="make flink"):
        install.find()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (None, "Flink skipped: there is no mvn on this machine"),
        ("echo '[ERROR] no route to host' >&2; exit 7", "ended with 7: [ERROR] no route to host"),
    ],
)
def test_flink_that_cannot_be_had_is_skipped_with_the_reason(tmp_path, monkeypatch, script, reason):
    monkeypatch.setattr(install, "INSTALLED", tmp_path / ".flink")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if script:
        program = tmp_path / "mvn"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    assert reason in install.ensure()
    assert not Path(tmp_path / ".flink" / "pom.xml").exists()
