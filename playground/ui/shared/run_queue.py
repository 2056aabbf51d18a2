"""The queue of comparisons: some run at the same time, others wait for their turn."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from engine.errors import PlaygroundError

_CHECK = 0.2  # seconds between two checks for a waiting comparison that was stopped
_RECENT = 20  # ended comparisons from which the waiting time is estimated


class Place(NamedTuple):
    """The place of a waiting comparison."""

    ahead: int  # comparisons that have to end before this one starts
    seconds: float | None  # expected until then; None until a comparison has ended


@dataclass(eq=False)
class _Ticket:
    visitor: str
    running: bool = False


class RunQueue:
    """Lets ``limit`` comparisons run at the same time and ``waiting`` others wait.

    Visitors take turns: of those who wait, the one with the fewest starts comes first, and of equal
    ones the one who came first. A visitor holds at most half of the waiting places.
    """

    def __init__(self, limit: int, waiting: int) -> None:
        self._limit = limit
        self._waiting = waiting
        self._share = max(1, waiting // 2)
        self._changed = threading.Condition()
        self._tickets: list[_Ticket] = []  # in the order they came
        self._starts: dict[str, int] = {}  # by visitor, since the queue was last empty
        self._durations: deque[float] = deque(maxlen=_RECENT)

    @property
    def running(self) -> int:
        """The number of comparisons that run."""
        return sum(ticket.running for ticket in self._tickets)

    @property
    def waiting(self) -> int:
        """The number of comparisons that wait."""
        return len(self._tickets) - self.running

    @contextmanager
    def turn(
        self,
        visitor: str,
        stopped: Callable[[], bool] = lambda: False,
        report: Callable[[Place], None] = lambda place: None,
    ) -> Iterator[None]:
        """Wait for a turn, or until ``stopped`` is true, and hold it.

        ``report`` is called with the place in the queue whenever it changes. Raises
        `PlaygroundError` if the queue is full.
        """
        ticket = self._join(visitor)
        started = 0.0
        try:
            self._wait(ticket, stopped, report)
            started = time.monotonic()
            yield
        finally:
            with self._changed:
                self._tickets.remove(ticket)
                if ticket.running:
                    self._durations.append(time.monotonic() - started)
                if not self._tickets:
                    self._starts.clear()
                self._changed.notify_all()

    def _join(self, visitor: str) -> _Ticket:
        with self._changed:
            ticket = _Ticket(visitor)
            if self.running == self._limit:
                own = sum(one.visitor == visitor and not one.running for one in self._tickets)
                if self.waiting >= self._waiting:
                    raise PlaygroundError(self._full(f"{self.waiting} comparisons are waiting"))
                if own >= self._share:
                    raise PlaygroundError(self._full(f"{own} of your comparisons are waiting"))
            # Who comes late has no more turns than those who are here.
            least = min((self._starts[one.visitor] for one in self._tickets), default=0)
            self._starts[visitor] = max(self._starts.get(visitor, 0), least)
            self._tickets.append(ticket)
            return ticket

    def _full(self, reason: str) -> str:
        wait = self._expected(self.waiting)
        later = "later" if wait is None else f"in about {wait:,.0f} s"
        return f"the server is busy: {reason}; try again {later}"

    def _wait(
        self, ticket: _Ticket, stopped: Callable[[], bool], report: Callable[[Place], None]
    ) -> None:
        reported = 0
        while not stopped():
            with self._changed:
                ahead = self._order().index(ticket) - (self._limit - self.running) + 1
                if ahead <= 0:
                    ticket.running = True
                    self._starts[ticket.visitor] += 1
                    return
                place = Place(ahead, self._expected(ahead))
            if ahead != reported:
                report(place)
            reported = ahead
            with self._changed:
                self._changed.wait(_CHECK)

    def _order(self) -> list[_Ticket]:
        """The waiting tickets, the next one first."""
        starts = dict(self._starts)
        ranks = []
        for ticket in self._tickets:
            if not ticket.running:
                ranks.append((starts[ticket.visitor], ticket))
                starts[ticket.visitor] += 1
        return [ticket for _, ticket in sorted(ranks, key=lambda rank: rank[0])]

    def _expected(self, ahead: int) -> float | None:
        if not self._durations:
            return None
        return ahead * sum(self._durations) / len(self._durations) / self._limit
