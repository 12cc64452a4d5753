"""Who builds and changes masters from rows that are not Arrow.

The layers above register an engine here, so that this one needs to know none of them.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from adjoin.master.apply import ApplyOptions, Base, apply
from adjoin.master.build import BuildOptions, build
from adjoin.master.page_moves import Mover, move
from adjoin.master.progress import Progress
from adjoin.master.versions import Home


class Engine(Protocol):
    """Builds and changes masters from rows of a certain kind."""

    def accepts(self, source: Any) -> bool:
        """True if the rows are of that kind."""

    def build(
        self, source: Any, key: str | Sequence[str], home: Home, options: BuildOptions, progress: Progress
    ) -> None:
        """As `adjoin.master.build.build`."""

    def apply(self, home: Home, base: Base, changes: Any, options: ApplyOptions) -> int | None:
        """As `adjoin.master.apply.apply`."""

    def mover(self, page_bytes: int) -> Mover | None:
        """Who moves so many bytes of pages, if this engine should do that now."""


class _InProcess:
    """Rows that pyarrow can read."""

    build = staticmethod(build)
    apply = staticmethod(apply)

    def accepts(self, source: Any) -> bool:  # noqa: ARG002 (whatever it is, this engine names what is wrong)
        return True

    def mover(self, page_bytes: int) -> Mover | None:  # noqa: ARG002 (it moves as many as there are)
        return move


_engines: list[Engine] = [_InProcess()]


def register(engine: Engine) -> None:
    """Prefer this engine for the rows it accepts."""
    _engines.insert(0, engine)


def engine_for(source: Any) -> Engine:
    """The engine for these rows; what no other accepts is for pyarrow."""
    return next(engine for engine in _engines if engine.accepts(source))


def mover_for(page_bytes: int) -> Mover:
    """Who moves so many bytes of pages."""
    return next(mover for engine in _engines if (mover := engine.mover(page_bytes)) is not None)
