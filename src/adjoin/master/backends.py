"""Backends: where masters are built and changed, depending on what kind of rows they are given.

Layers above register their backends here, so that this one need not import them.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from adjoin.master.apply import ApplyOptions, Base, apply
from adjoin.master.build import BuildOptions, build
from adjoin.master.page_moves import Mover, move
from adjoin.master.progress import Progress
from adjoin.master.versions import Home


class Backend(Protocol):
    """Builds and changes masters from one kind of rows."""

    def accepts(self, source: Any) -> bool:
        """Whether the rows are of that kind."""

    def build(
        self, source: Any, key: str | Sequence[str], home: Home, options: BuildOptions, progress: Progress
    ) -> None:
        """See `adjoin.master.build.build`."""

    def apply(self, home: Home, base: Base, changes: Any, options: ApplyOptions) -> int | None:
        """See `adjoin.master.apply.apply`."""

    def mover(self, page_bytes: int) -> Mover | None:
        """The function that moves pages of this total size, or None to leave it to another backend."""


class _InProcess:
    """Rows that pyarrow can read."""

    build = staticmethod(build)
    apply = staticmethod(apply)

    def accepts(self, source: Any) -> bool:  # noqa: ARG002 (`build` and `apply` report what they cannot read)
        return True

    def mover(self, page_bytes: int) -> Mover | None:  # noqa: ARG002 (it moves any number of pages)
        return move


_backends: list[Backend] = [_InProcess()]


def register(backend: Backend) -> None:
    """Prefer this backend for the rows that it accepts."""
    _backends.insert(0, backend)


def backend_for(source: Any) -> Backend:
    """The backend for these rows; pyarrow gets what no other accepts."""
    return next(backend for backend in _backends if backend.accepts(source))


def mover_for(page_bytes: int) -> Mover:
    """The function that moves pages of this total size."""
    return next(mover for backend in _backends if (mover := backend.mover(page_bytes)) is not None)
