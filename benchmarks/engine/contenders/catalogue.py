"""Contenders by name; each is imported only in the process that runs it."""

from importlib import import_module

from benchmarks.engine.contenders.contender import Contender

_CLASSES = {
    ("lmdb", False): ("lmdb_getmulti", "LmdbGetmulti"),
    ("duckdb", False): ("duckdb_join", "DuckdbJoin"),
    ("sqlite", False): ("sqlite_join", "SqliteJoin"),
    ("polars", False): ("polars_join", "PolarsJoin"),
    ("ssij streaming", False): ("adjoin_ssij", "SsijStreaming"),
    ("ssij drained", False): ("adjoin_ssij", "SsijDrained"),
    ("ssij streaming", True): ("adjoin_ssij", "FilteredStreaming"),
    ("ssij drained", True): ("adjoin_ssij", "FilteredDrained"),
}


def contender_class(name: str, filtered: bool = False) -> type[Contender]:
    """The class of a contender, over a master with a membership filter if asked for."""
    module, class_name = _CLASSES[name, filtered]
    found: type[Contender] = getattr(import_module(f"{__package__}.{module}"), class_name)
    return found
