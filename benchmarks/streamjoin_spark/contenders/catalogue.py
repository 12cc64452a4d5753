"""Contenders that run on Spark by name; each is imported only in the process that runs it."""

from importlib import import_module

from benchmarks.streamjoin_spark.contenders.contender import Contender

_CLASSES = {
    "adjoin.join": ("adjoin_join", "Join"),
    "adjoin.join_all": ("adjoin_join", "JoinAll"),
    "spark rocksdb v2": ("spark_join", "RocksDB2"),
    "spark rocksdb v4": ("spark_join", "RocksDB4"),
    "spark in memory": ("spark_join", "InMemory"),
    "spark cells": ("spark_cells", "Cells"),
}


def contender_class(name: str) -> type[Contender]:
    """The class of a contender."""
    module, class_name = _CLASSES[name]
    found: type[Contender] = getattr(import_module(f"{__package__}.{module}"), class_name)
    return found
