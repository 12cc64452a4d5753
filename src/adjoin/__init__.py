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

__version__ = "0.1.0"

__all__ = [
    "AdjoinError",
    "BudgetError",
    "ConflictError",
    "CorruptionError",
    "MasterExistsError",
    "MasterNotFoundError",
    "NullKeyError",
    "OptionError",
    "SchemaError",
    "StorageError",
    "VersionNotFoundError",
    "__version__",
]
