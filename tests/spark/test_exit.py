"""A driver that ends without stopping its session says nothing of listeners that are gone."""

import re

import pytest

from tests.spark.programs import Program

COMPLAINT = re.compile(r"py4j|Traceback|ListenerBus", re.IGNORECASE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "code"), [("last line", 0), ("sys.exit", 0), ("error", 1), ("stopped query", 0)]
)
def test_nothing_is_said_of_listeners_that_are_gone(tmp_path, end, code):
    program = Program("on_exit", tmp_path, end, work=tmp_path / "logs")
    assert program.wait() == code, program.told()
    said = program.log.read_text(errors="replace")
    assert not COMPLAINT.search(said), said
