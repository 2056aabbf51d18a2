"""What other threads tell, gathered so that a page hears of it only so often.

Knows queues and time. Refuses to know what is told.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from typing import Any, NamedTuple


class End(NamedTuple):
    """The last thing told: all went well, or this went wrong."""

    error: BaseException | None = None


def gathered(arrived: queue.SimpleQueue[Any], seconds: float) -> Iterator[list[Any]]:
    """What has arrived, at most once in so many seconds, up to the end; raises what went wrong.

    None that arrives has a batch given at once, be it an empty one.
    """
    due = 0.0
    while True:
        items = [arrived.get()]
        time.sleep(max(0.0, due - time.monotonic()))
        due = time.monotonic() + seconds
        while not arrived.empty():
            items.append(arrived.get())
        end = next((item for item in items if isinstance(item, End)), None)
        if news := [item for item in items if not isinstance(item, End)]:
            yield [item for item in news if item is not None]
        if end:
            if end.error:
                raise end.error
            return
