"""Joins for near-real-time ETL: exact, in bounded memory, reading the disk only where the stream points."""

import importlib
from typing import TYPE_CHECKING, Any

from adjoin.errors import (
    AdjoinError,
    ArenaError,
    BudgetError,
    ConflictError,
    CorruptionError,
    JavaError,
    MasterExistsError,
    MasterNotFoundError,
    MasterReplacedError,
    NullKeyError,
    OptionError,
    ProgramError,
    SchemaError,
    StorageError,
    VersionNotFoundError,
)
from adjoin.master.backends import register
from adjoin.master.master import Master
from adjoin.memory.heap import return_freed_memory
from adjoin.memory.page_memory import PageFile
from adjoin.operators.clock import Pause
from adjoin.semistream.auto import AutoJoin
from adjoin.semistream.frontstage.stage import FrontStage
from adjoin.semistream.hybridjoin.hybridjoin import HybridJoin
from adjoin.semistream.hybridjoin.xhybridjoin import XHybridJoin
from adjoin.semistream.index_nested_loop import IndexNestedLoopJoin
from adjoin.semistream.meshjoin.cmeshjoin import CMeshJoin
from adjoin.semistream.meshjoin.meshjoin import MeshJoin
from adjoin.semistream.meshjoin.rmeshjoin import RMeshJoin
from adjoin.semistream.ssij import SSIJ
from adjoin.spark.backend import SparkBackend
from adjoin.spark.reason import reason
from adjoin.streamjoin.baselines.hash_merge import HashMergeJoin
from adjoin.streamjoin.baselines.mjoin import MJoin
from adjoin.streamjoin.baselines.progressive_merge import ProgressiveMergeJoin
from adjoin.streamjoin.baselines.rpj import RPJ
from adjoin.streamjoin.baselines.symmetric_hash import SymmetricHashJoin
from adjoin.streamjoin.baselines.xjoin import XJoin
from adjoin.streamjoin.diner import DINER
from adjoin.streamjoin.miner import MINER

if TYPE_CHECKING:
    from adjoin import etl
    from adjoin.spark.enrich.enrich import enrich
    from adjoin.spark.join.join import join
    from adjoin.spark.metrics.join_progress import BucketProgress, JoinListener, JoinProgress
    from adjoin.spark.metrics.metrics import EnrichListener, EnrichProgress, TaskProgress

__version__ = "0.1.0"

__all__ = [
    "DINER",
    "MINER",
    "RPJ",
    "SSIJ",
    "AdjoinError",
    "ArenaError",
    "AutoJoin",
    "BucketProgress",
    "BudgetError",
    "CMeshJoin",
    "ConflictError",
    "CorruptionError",
    "EnrichListener",
    "EnrichProgress",
    "FrontStage",
    "HashMergeJoin",
    "HybridJoin",
    "IndexNestedLoopJoin",
    "JavaError",
    "JoinListener",
    "JoinProgress",
    "MJoin",
    "Master",
    "MasterExistsError",
    "MasterNotFoundError",
    "MasterReplacedError",
    "MeshJoin",
    "NullKeyError",
    "OptionError",
    "PageFile",
    "Pause",
    "ProgramError",
    "ProgressiveMergeJoin",
    "RMeshJoin",
    "SchemaError",
    "StorageError",
    "SymmetricHashJoin",
    "TaskProgress",
    "VersionNotFoundError",
    "XHybridJoin",
    "XJoin",
    "__version__",
    "enrich",
    "etl",
    "join",
    "reason",
    "return_freed_memory",
]

register(SparkBackend())

_ON_SPARK = {
    "BucketProgress": "adjoin.spark.metrics.join_progress",
    "EnrichListener": "adjoin.spark.metrics.metrics",
    "EnrichProgress": "adjoin.spark.metrics.metrics",
    "JoinListener": "adjoin.spark.metrics.join_progress",
    "JoinProgress": "adjoin.spark.metrics.join_progress",
    "TaskProgress": "adjoin.spark.metrics.metrics",
    "enrich": "adjoin.spark.enrich.enrich",
    "join": "adjoin.spark.join.join",
}


def __getattr__(name: str) -> Any:
    """Import what needs Spark on first use; joins in process do without."""
    if name != "etl" and name not in _ON_SPARK:
        raise AttributeError(f"module 'adjoin' has no attribute {name!r}")
    try:
        if name == "etl":
            return importlib.import_module("adjoin.etl")
        return getattr(importlib.import_module(_ON_SPARK[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "pyspark":
            raise
        raise ImportError(f"adjoin.{name} needs Spark: install adjoin[spark]") from error
