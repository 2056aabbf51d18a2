"""Work that takes its time: who has some going on, how far it is, and how it is stopped.

Knows visitors and threads. Refuses to know what is worked on. A visitor has one job of a kind, and
the server only so many: who comes too many is told so, and nobody waits behind somebody else's.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr
from gradio.context import Context

from engine.errors import PlaygroundError
from playground.ui.compare.components import visitor
from playground.ui.shared.throttle import End, gathered

REFRESH = 0.4  # seconds between two pieces of news

Tell = Callable[[Any], None]
Work = Callable[[threading.Event, Tell], None]


class Jobs:
    """The jobs of one kind, by visitor."""

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self._lock = threading.Lock()
        self._going: dict[str, threading.Event] = {}

    def stop(self, visitor: str) -> None:
        """End the visitor's job as soon as it looks up."""
        if stop := self._going.get(visitor):
            stop.set()

    def stops_with(self, button: gr.Button, **how: Any) -> None:
        """Let a button stop its visitor's job, and leaving the page as well."""

        def leave(request: gr.Request) -> None:
            self.stop(visitor(request))

        button.click(leave, None, None, queue=False, **how)
        assert Context.root_block is not None, "parts are connected while the page is built"
        Context.root_block.unload(leave)

    def follow(self, visitor: str, work: Work, refresh: float = REFRESH) -> Iterator[list[Any]]:
        """Do the work in a thread of its own; gives what it tells, some at a time.

        Closing the iterator stops the work. What the work raises is raised here.
        """
        stop = self._begin(visitor)
        news: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._do, args=(visitor, stop, work, news), daemon=True).start()
        try:
            yield from gathered(news, refresh)
        finally:
            stop.set()

    def _begin(self, visitor: str) -> threading.Event:
        with self._lock:
            if visitor in self._going:
                raise PlaygroundError(f"{self._name} is going on; stop it first")
            if len(self._going) >= self._most:
                raise PlaygroundError(
                    f"others have {self._name} going on, {self._most} at once are allowed here;"
                    " try again in a while"
                )
            return self._going.setdefault(visitor, threading.Event())

    def _do(
        self, visitor: str, stop: threading.Event, work: Work, news: queue.SimpleQueue[Any]
    ) -> None:
        error = None
        try:
            work(stop, news.put)
        except BaseException as raised:
            error = raised
        with self._lock:
            del self._going[visitor]  # before its page hears of the end, and may begin another
        news.put(End(error))
