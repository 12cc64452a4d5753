"""The errors that adjoin raises on purpose: each says what was wrong, with which value, and what to do."""


class AdjoinError(Exception):
    """Base class of all errors that adjoin raises on purpose."""


class SchemaError(AdjoinError):
    """A column is missing, has an unsupported type, or clashes with another one."""


class OptionError(AdjoinError, ValueError):
    """An argument has an invalid value."""


class BudgetError(AdjoinError):
    """The given memory is not enough."""


class NullKeyError(AdjoinError):
    """Rows of the master have a null key."""


class MasterNotFoundError(AdjoinError):
    """There is no master at this path."""


class MasterExistsError(AdjoinError):
    """There is already a master at this path."""


class MasterReplacedError(AdjoinError):
    """Another master has been built at this path since this one was opened."""


class VersionNotFoundError(AdjoinError):
    """This version was never committed, or `vacuum` has removed it."""


class ConflictError(AdjoinError):
    """Another writer committed first."""


class CorruptionError(AdjoinError):
    """Bytes on disk are not the ones that were written."""


class StorageError(AdjoinError):
    """The file system refused a write or a read: disk full, no permission, device error."""


class ArenaError(AdjoinError):
    """The file that holds pages cannot be created, or the file system has no room for it."""


class JavaError(AdjoinError):
    """There is no Java installation that Spark can run on."""


class ProgramError(AdjoinError):
    """A program that generates test data is not installed, or has failed."""
