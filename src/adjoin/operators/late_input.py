"""Input that may be late: waiting for the next item with a timeout."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
_END = object()


def arrivals(items: Iterable[Item], patience_seconds: Callable[[], float | None]) -> Iterator[Item | None]:
    """The items, with a None whenever the next one does not arrive in time.

    The source is read in a thread, one item ahead. Its errors are raised here.

    Args:
        items: The source; it may block.
        patience_seconds: Called before each wait; returns how long to wait, or None to wait forever.
    """
    source = _Source(items)
    try:
        while True:
            try:
                item, error = source.handed.get(timeout=patience_seconds())
            except queue.Empty:
                yield None
                continue
            if error is not None:
                raise error
            if item is _END:
                return
            yield item  # type: ignore[misc]
    finally:
        source.stopped.set()


class _Source:
    """Reads items in a thread and hands them over one at a time."""

    def __init__(self, items: Iterable[object]) -> None:
        self.handed: queue.Queue[tuple[object, BaseException | None]] = queue.Queue(maxsize=1)
        self.stopped = threading.Event()
        self._items = items
        threading.Thread(target=self._read, name="adjoin-arrivals", daemon=True).start()

    def _read(self) -> None:
        try:
            for item in self._items:
                self._hand(item)
                if self.stopped.is_set():
                    return
            self._hand(_END)
        except BaseException as error:  # noqa: BLE001 (raised again where the items are consumed)
            self._hand(_END, error)

    def _hand(self, item: object, error: BaseException | None = None) -> None:
        while not self.stopped.is_set():
            try:
                self.handed.put((item, error), timeout=0.1)
                return
            except queue.Full:
                continue
