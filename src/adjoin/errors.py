"""Everything adjoin raises on purpose: each says what was wrong, with which value, and what to do."""


class AdjoinError(Exception):
    """Base of all errors that adjoin raises on purpose."""


class SchemaError(AdjoinError):
    """A column is missing, has a type that cannot be used, or clashes with another."""


class OptionError(AdjoinError, ValueError):
    """An argument has a value that makes no sense."""


class BudgetError(AdjoinError):
    """The memory given is less than the least that works."""


class NullKeyError(AdjoinError):
    """Rows of the master have a null key."""


class MasterNotFoundError(AdjoinError):
    """There is no master at this path."""


class MasterExistsError(AdjoinError):
    """There is a master at this path already."""


class MasterReplacedError(AdjoinError):
    """Another master was built at this path since this one was opened."""


class VersionNotFoundError(AdjoinError):
    """This version was never committed, or `vacuum` has removed it."""


class ConflictError(AdjoinError):
    """Another writer has committed first."""


class CorruptionError(AdjoinError):
    """Bytes on disk are not the bytes that were written."""


class StorageError(AdjoinError):
    """The file system refused a write or a read: disk full, no permission, device error."""


class ArenaError(AdjoinError):
    """The file in which pages are kept cannot be made, or finds no room."""


class JavaError(AdjoinError):
    """There is no Java that Spark can run on."""


class ProgramError(AdjoinError):
    """A program that makes test data is not installed, or has failed."""
