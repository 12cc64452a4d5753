"""The semi-stream operators by name."""

from adjoin.errors import OptionError
from adjoin.semistream.auto import AutoJoin
from adjoin.semistream.base.queued import QueuedJoin
from adjoin.semistream.frontstage.stage import FrontStage, FrontStaged
from adjoin.semistream.hybridjoin.hybridjoin import HybridJoin
from adjoin.semistream.hybridjoin.xhybridjoin import XHybridJoin
from adjoin.semistream.index_nested_loop import IndexNestedLoopJoin
from adjoin.semistream.meshjoin.meshjoin import MeshJoin
from adjoin.semistream.meshjoin.rmeshjoin import RMeshJoin
from adjoin.semistream.ssij import SSIJ

_JOINS: dict[str, type[SSIJ] | type[QueuedJoin]] = {
    "ssij": SSIJ,
    "hybridjoin": HybridJoin,
    "xhybridjoin": XHybridJoin,
    "meshjoin": MeshJoin,
    "rmeshjoin": RMeshJoin,
    "inlj": IndexNestedLoopJoin,
}
_FRONT = "+front"
_SHORT = {"cmeshjoin": "meshjoin+front"}


ALGORITHM_NAMES = (*_JOINS, *_SHORT, *(name + _FRONT for name in _JOINS), "auto")


def algorithm_named(name: str) -> type[SSIJ] | type[QueuedJoin] | type[FrontStaged] | type[AutoJoin]:
    """The operator of this name, or an OptionError that lists the names there are.

    >>> algorithm_named("ssij").__name__
    'SSIJ'
    >>> algorithm_named("cmeshjoin") is algorithm_named("meshjoin+front")
    True
    """
    if name == "auto":
        return AutoJoin
    whole = _SHORT.get(name, name) if isinstance(name, str) else ""
    join = _JOINS.get(whole.removesuffix(_FRONT))
    if join is None:
        raise OptionError(f"algorithm={name!r} is not one of {', '.join(ALGORITHM_NAMES)}")
    return FrontStage(join) if whole.endswith(_FRONT) else join
