from typing import Any

import pytest

import adjoin
from benchmarks.streamjoin_spark.cases import ALL, FLINK, full_cases, smoke_cases
from benchmarks.streamjoin_spark.contenders.catalogue import contender_class
from benchmarks.streamjoin_spark.flink import contenders as flink
from benchmarks.streamjoin_spark.shapes import SHAPES, WITHIN


class Stream:
    """A DataFrame that remembers its watermark."""

    def __init__(self, name: str) -> None:
        self.name = name

    def withWatermark(self, time: str, delay: str) -> "Stream":  # noqa: N802  # Spark's name
        return Stream(f"{self.name} by {time} - {delay}")


BOUND = {"before": "0 seconds", "after": "3600 seconds"}


@pytest.mark.parametrize(
    ("shape", "inputs", "options"),
    [
        (
            "equality",
            ["orders by ordered_at - 60 seconds", "payments by paid_at - 60 seconds"],
            {"on": "order_id", "time": ("ordered_at", "paid_at"), **BOUND},
        ),
        (
            "band",
            ["offers by offered_at - 60 seconds", "bids by bid_at - 60 seconds"],
            {"on": "price", "within": WITHIN, "time": ("offered_at", "bid_at"), **BOUND},
        ),
        ("range", ["spans", "points"], {"on": "position", "between": ("lower", "upper")}),
    ],
)
def test_our_join_is_asked_for_what_the_shape_says(monkeypatch, shape, inputs, options):
    asked: dict[str, Any] = {}

    def join(left: Stream, right: Stream, **given: Any) -> Stream:
        asked.update(given, inputs=[left.name, right.name])
        return left

    monkeypatch.setattr(adjoin, "join", join, raising=False)
    kind = contender_class("adjoin.join")
    assert kind.missing() == ""
    streams: Any = {name: Stream(name) for name in SHAPES[shape].inputs}
    kind(SHAPES[shape], 1 << 20).join(streams)
    assert asked == {**options, "inputs": inputs, "memory": 1 << 20}


def test_a_function_that_is_not_there_is_named(monkeypatch):
    monkeypatch.delattr(adjoin, "join_all", raising=False)
    assert contender_class("adjoin.join_all").missing() == "this version has no adjoin.join_all"


def test_the_smoke_test_has_every_contender_and_every_contender_has_its_settings():
    assert {name for case in smoke_cases() for name in case.contenders} == set(ALL)
    assert {name for case in full_cases() for name in case.contenders} == set(ALL)
    assert set(flink.SETTINGS) == set(FLINK)
    for name in set(ALL) - set(FLINK):
        kind = contender_class(name)
        assert (kind.name, bool(kind.settings), bool(kind.conf)) == (name, True, True)
