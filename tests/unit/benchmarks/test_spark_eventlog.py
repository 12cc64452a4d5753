import json

import pytest

from benchmarks.spark.eventlog import Window, evenness


def task(stage: int, launched: int, milliseconds: int, rows: int) -> str:
    metrics = {"Executor Run Time": milliseconds, "Shuffle Read Metrics": {"Total Records Read": rows}}
    return json.dumps(
        {
            "Event": "SparkListenerTaskEnd",
            "Stage ID": stage,
            "Task Info": {"Launch Time": launched},
            "Task Metrics": metrics,
        }
    )


EVENTS = [
    '{"Event": "SparkListenerApplicationStart"}',
    task(0, 5, 900, 10), task(0, 5, 1, 10),  # before the window
    task(1, 10, 500, 0), task(1, 10, 1, 0),  # the side that writes the shuffle
    task(2, 11, 800, 10), task(2, 11, 100, 10),  # warming up
    task(4, 12, 150, 30), task(4, 12, 100, 20),
    task(6, 13, 250, 20), task(6, 13, 100, 20),
    task(8, 14, 170, 20), task(8, 14, 100, 20),
    task(9, 15, 900, 20),  # another number of partitions
    task(10, 99, 900, 20), task(10, 99, 1, 20),  # after the window
]  # fmt: skip


def test_the_slowest_task_is_compared_within_each_routed_micro_batch(tmp_path):
    (tmp_path / "log").write_text("\n".join(EVENTS))
    found = evenness(tmp_path, partitions=2, window=Window(10, 50), skipped_batches=1)
    assert (found.slowest_to_median, found.rows_to_median) == (1.7, 1.0)


def test_a_stream_that_was_not_routed_is_rejected(tmp_path):
    (tmp_path / "log").write_text("\n".join(EVENTS))
    with pytest.raises(AssertionError, match="no micro-batch was routed to 8 partitions"):
        evenness(tmp_path, partitions=8, window=Window(10, 50), skipped_batches=1)
