"""Contenders by name; each is imported only in the process that runs it."""

from importlib import import_module

from benchmarks.spark.contenders.contender import Contender

_CLASSES = {
    "enrich": ("adjoin_enrich", "Enrich"),
    "spark broadcast stream": ("spark_join", "SparkBroadcast"),
    "spark sort-merge": ("spark_join", "SparkMerge"),
    "spark cached master": ("spark_join", "SparkCached"),
    "duckdb": ("stores", "Duckdb"),
    "duckdb routed": ("stores", "RoutedDuckdb"),
    "lmdb": ("stores", "Lmdb"),
    "identity routed": ("identity", "RoutedIdentity"),
    "identity": ("identity", "Identity"),
}


def contender_class(name: str) -> type[Contender]:
    """The class of a contender."""
    module, class_name = _CLASSES[name]
    found: type[Contender] = getattr(import_module(f"{__package__}.{module}"), class_name)
    return found
