"""A driver that exits without stopping its session does not complain about dead listeners."""

import re

import pytest

from tests.spark.programs import Program

COMPLAINT = re.compile(r"py4j|Traceback|ListenerBus", re.IGNORECASE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "code"), [("last line", 0), ("sys.exit", 0), ("error", 1), ("stopped query", 0)]
)
def test_dead_listeners_cause_no_complaints(tmp_path, end, code):
    program = Program("on_exit", tmp_path, end, work=tmp_path / "logs")
    assert program.wait() == code, program.told()
    said = program.log.read_text(errors="replace")
    assert not COMPLAINT.search(said), said
