"""A limit on comparisons that run at the same time; further ones wait in the order they came."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine.errors import PlaygroundError

_CHECK = 0.2  # seconds between two checks for a waiting comparison that was stopped


class Turns:
    """Lets ``limit`` comparisons run at the same time and ``waiting`` others wait."""

    def __init__(self, limit: int, waiting: int) -> None:
        self._limit = limit
        self._waiting = waiting
        self._changed = threading.Condition()
        self._tickets: list[object] = []  # in the order they came: the first ones run

    @contextmanager
    def turn(
        self,
        stopped: Callable[[], bool] = lambda: False,
        report: Callable[[int], None] = lambda ahead: None,
    ) -> Iterator[None]:
        """Wait for a turn, or until ``stopped`` is true, and hold it.

        ``report`` is called with the number of comparisons that have to end before this one starts,
        whenever it changes.
        """
        ticket = object()
        with self._changed:
            if len(self._tickets) >= self._limit + self._waiting:
                raise PlaygroundError(
                    f"the server is busy: {self._waiting} comparisons are waiting; try again later"
                )
            self._tickets.append(ticket)
        try:
            self._wait(ticket, stopped, report)
            yield
        finally:
            with self._changed:
                self._tickets.remove(ticket)
                self._changed.notify_all()

    def _wait(
        self, ticket: object, stopped: Callable[[], bool], report: Callable[[int], None]
    ) -> None:
        reported = 0
        while (ahead := self._ahead(ticket)) > 0 and not stopped():
            if ahead != reported:
                report(ahead)
            reported = ahead
            with self._changed:
                self._changed.wait(_CHECK)

    def _ahead(self, ticket: object) -> int:
        with self._changed:
            return self._tickets.index(ticket) - self._limit + 1
