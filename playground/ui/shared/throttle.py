"""Items from other threads, collected into batches at a limited rate."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple


class End(NamedTuple):
    """The last item of a queue; ``error`` is raised in the consumer."""

    error: BaseException | None = None


def batches(items: queue.SimpleQueue[Any], seconds: float) -> Iterator[list[Any]]:
    """Yield what has arrived, at most every ``seconds``, until an `End` arrives.

    The first batch is yielded at once.
    """
    due = 0.0
    while True:
        arrived = [items.get()]
        time.sleep(max(0.0, due - time.monotonic()))
        due = time.monotonic() + seconds
        while not items.empty():
            arrived.append(items.get())
        end = next((item for item in arrived if isinstance(item, End)), None)
        if batch := [item for item in arrived if not isinstance(item, End)]:
            yield batch
        if end:
            if end.error:
                raise end.error
            return


def read_ahead(source: Iterable[Any], items: queue.SimpleQueue[Any]) -> None:
    """Read a source in a thread of its own, into a queue for `batches`."""
    threading.Thread(target=_read, args=(source, items), daemon=True).start()


def _read(source: Iterable[Any], items: queue.SimpleQueue[Any]) -> None:
    try:
        for item in source:
            items.put(item)
        items.put(End())
    except BaseException as error:
        items.put(End(error))
