"""Joins for near-real-time ETL: exact, in bounded memory, reading the disk only where the stream points."""

from adjoin.errors import (
    AdjoinError,
    BudgetError,
    ConflictError,
    CorruptionError,
    MasterExistsError,
    MasterNotFoundError,
    NullKeyError,
    OptionError,
    SchemaError,
    StorageError,
    VersionNotFoundError,
)
from adjoin.master.master import Master
from adjoin.parts.clock import Pause
from adjoin.semistream.ssij import SSIJ

__version__ = "0.1.0"

__all__ = [
    "SSIJ",
    "AdjoinError",
    "BudgetError",
    "ConflictError",
    "CorruptionError",
    "Master",
    "MasterExistsError",
    "MasterNotFoundError",
    "NullKeyError",
    "OptionError",
    "Pause",
    "SchemaError",
    "StorageError",
    "VersionNotFoundError",
    "__version__",
]
