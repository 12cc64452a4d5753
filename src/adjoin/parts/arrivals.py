"""Input that may be late: waits for the next item, but not longer than told."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
_END = object()


def arrivals(items: Iterable[Item], patience_seconds: Callable[[], float | None]) -> Iterator[Item | None]:
    """The items, with a None each time none came within the patience asked for just before.

    The source is read in a thread, one item ahead. An error of the source is raised here.

    Args:
        items: The source; may block.
        patience_seconds: How long to wait for the next item; None: for ever.
    """
    handed: queue.Queue[tuple[object, BaseException | None]] = queue.Queue(maxsize=1)
    stopped = threading.Event()

    def hand(item: object, error: BaseException | None = None) -> None:
        while not stopped.is_set():
            try:
                handed.put((item, error), timeout=0.1)
                return
            except queue.Full:
                continue

    def read() -> None:
        try:
            for item in items:
                hand(item)
                if stopped.is_set():
                    return
            hand(_END)
        except BaseException as error:  # noqa: BLE001 - raised again where the items are consumed
            hand(_END, error)

    threading.Thread(target=read, name="adjoin-arrivals", daemon=True).start()
    try:
        while True:
            try:
                item, error = handed.get(timeout=patience_seconds())
            except queue.Empty:
                yield None
                continue
            if error is not None:
                raise error
            if item is _END:
                return
            yield item  # type: ignore[misc]
    finally:
        stopped.set()
