"""The semi-stream operators by name."""

from adjoin.errors import OptionError
from adjoin.semistream.ssij import SSIJ

ALGORITHMS = {"ssij": SSIJ}


def algorithm_named(name: str) -> type[SSIJ]:
    """The operator of this name, or an OptionError that lists the names there are."""
    if name not in ALGORITHMS:
        raise OptionError(f"algorithm={name!r} is not one of {', '.join(ALGORITHMS)}")
    return ALGORITHMS[name]
