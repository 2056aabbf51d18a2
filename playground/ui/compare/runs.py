"""Starts, controls and stores the comparisons of all visitors."""

from __future__ import annotations

import json
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Any

from engine.errors import PlaygroundError
from engine.run_control import RunControl
from engine.settings import Limits
from engine.trace import Update
from playground import Playground
from playground.ui.shared.comparison import Column, Comparison, InheritedToken, RunRequest
from playground.ui.shared.live_feed import Feed
from playground.ui.shared.messages import FAILED
from playground.ui.shared.monitoring import Monitoring
from playground.ui.shared.run_queue import Place, RunQueue
from playground.ui.shared.throttle import batches, read_ahead

REFRESH = 0.03  # seconds between two updates of a feed
PATIENCE = 600.0  # seconds a paused run waits for its visitor
LOST_WAIT = 30.0  # seconds a run goes on after its page lost the connection
LEFT_WAIT = 5.0  # seconds a run goes on after its page was closed or reloaded

_STOP_WAIT = 10.0  # seconds a run may take to stop
_CLOSE_WAIT = 5.0  # seconds that all runs may take when the server ends

_STATUS = {"playing": "Generating …", "paused": "Paused."}

# Adds columns to a comparison and returns their updates; the control pauses and stops them.
Start = Callable[[RunControl], Iterable[Update]]
# Finds where a fork branches off: the column, and the tokens before the fork's own.
FindFork = Callable[[Comparison, Playground], tuple[Column, Sequence[InheritedToken]]]


@dataclass(eq=False)
class _Running:
    """Runs in progress, and whether a page reads them."""

    visitor: str
    comparison: Comparison
    control: RunControl
    readers: int = 0
    hidden: bool = False  # the page is in a hidden tab, which holds no connection
    reason: str = ""  # why it was stopped, if the visitor did not stop it
    ended: threading.Event = field(default_factory=threading.Event)


class Runs:
    """The running and the stored comparisons of all visitors.

    A page reads its comparison by the feed's id, which cannot be guessed. Comparisons are stored
    for a while after their visitor has left, so that a page can be reloaded.
    """

    def __init__(
        self,
        limits: Limits,
        queue: RunQueue,
        monitoring: Monitoring,
        *,
        patience: float = PATIENCE,
        lost_wait: float = LOST_WAIT,
        left_wait: float = LEFT_WAIT,
    ) -> None:
        self._limits = limits
        self._queue = queue
        self._monitoring = monitoring
        self._patience = patience
        self._lost_wait = lost_wait
        self._left_wait = left_wait
        self._running: dict[str, _Running] = {}  # by visitor
        self._writing: dict[str, _Running] = {}  # by feed id
        self._current: dict[str, str] = {}  # feed id by visitor
        self._stored: dict[str, Comparison] = {}  # by feed id; the oldest first
        self._closed = False

    def is_running(self, visitor: str) -> bool:
        """Whether runs of the visitor are in progress."""
        return visitor in self._running

    def comparison(self, visitor: str) -> Comparison | None:
        """The comparison on the visitor's page; None if there is none or it is no longer stored."""
        return self._stored.get(self._current.get(visitor, ""))

    def stop(self, visitor: str) -> None:
        """Stop the visitor's runs and wait for their end."""
        if running := self._running.get(visitor):
            running.control.stop()
            running.ended.wait(_STOP_WAIT)

    def show(self, visitor: str, comparison: Comparison) -> str:
        """Put a comparison on the visitor's page; returns the live view's value."""
        self._current[visitor] = comparison.feed.id
        self._stored.pop(comparison.feed.id, None)
        self._stored[comparison.feed.id] = comparison
        for old in list(self._stored)[: -self._limits.boards]:
            self._stored.pop(old, None)
        for other, feed in list(self._current.items()):
            if feed not in self._stored:
                self._current.pop(other, None)
        return _value(feed=comparison.feed.id)

    def resume(self, visitor: str, feed: str) -> str | None:
        """The live view's value for a page that was reloaded; None if nothing is stored."""
        comparison = self._stored.get(feed)
        if comparison is None or self.is_running(visitor):
            return None
        if running := self._writing.get(feed):
            self._running[visitor] = running
        return self.show(visitor, comparison)

    @contextmanager
    def reading(self, feed: str) -> Iterator[Feed | None]:
        """The feed with this id, or None, for a page that reads it.

        Runs that no page reads any more are stopped after a while, except those of a hidden tab.
        """
        running, comparison = self._writing.get(feed), self._stored.get(feed)
        if running is None:
            yield comparison.feed if comparison else None
            return
        running.readers += 1
        running.hidden = False
        try:
            yield running.comparison.feed
        finally:
            running.readers -= 1
            self._stop_unread(running, self._lost_wait)

    def _stop_unread(self, running: _Running, seconds: float) -> None:
        """Stop runs after ``seconds`` unless a page reads them then."""

        def check() -> None:
            if running.readers == 0 and not running.hidden:
                running.reason = "the page was closed"
                running.control.stop()

        timer = threading.Timer(seconds, check)
        timer.daemon = True
        timer.start()

    def command(self, feed: str, command: str) -> None:
        """Do what a page requests: pause, play, step or stop, or let it hide or leave."""
        running = self._writing.get(feed)
        if running is None:
            return
        if command in ("pause", "play", "step"):
            getattr(running.control, command)()
            self._set_state(running)
        elif command == "stop":
            running.control.stop()
        elif command == "hide":
            running.hidden = True
        elif command == "leave":
            running.hidden = False
            self._stop_unread(running, self._left_wait)

    def _set_state(self, running: _Running) -> None:
        state = "paused" if running.control.paused else "playing"
        running.comparison.feed.set_state(state)
        running.comparison.feed.set_status(_STATUS[state])

    def compare(
        self,
        lab: Playground,
        visitor: str,
        requests: Callable[[], Sequence[RunRequest]],
        *,
        stepping: bool = False,
    ) -> str | None:
        """Start a comparison; returns the live view's value.

        Nothing happens if the visitor has runs in progress.
        """
        comparison = Comparison(lab.model.name)

        def start(control: RunControl) -> Iterable[Update]:
            columns = requests()
            first = columns[0]
            choices = [request.choice for request in columns]
            updates = lab.stream(first.prompt, choices, stop=control, **first.shared)
            for request in columns:
                comparison.add(request)
            return updates

        return self._start(visitor, comparison, start, stepping=stepping)

    def fork(
        self, find_lab: Callable[[str], Playground], visitor: str, find_fork: FindFork
    ) -> str | None:
        """Continue one of the visitor's columns from another token, in a new column."""
        comparison = self.comparison(visitor)
        if comparison is None:
            return _value(error="The server no longer stores these runs. Run them again.")

        def start(control: RunControl) -> Iterable[Update]:
            if len(comparison.columns) >= self._limits.columns:
                raise PlaygroundError(f"at most {self._limits.columns} columns are allowed")
            lab = find_lab(comparison.model)
            origin, prefix = find_fork(comparison, lab)
            request = origin.request
            ids = [inherited.token.id for inherited in prefix]
            updates = lab.stream(
                request.prompt, [request.choice], stop=control, prefix=ids, **request.shared
            )
            key = comparison.add(request, prefix, origin.key).key
            return (replace(update, run=key) for update in updates)

        return self._start(visitor, comparison, start)

    def close(self) -> None:
        """Stop all runs, because the server ends, and refuse further ones."""
        self._closed = True
        running = list(self._writing.values())
        for one in running:
            one.reason = "the server is shutting down"
            one.control.stop()
        end = time.monotonic() + _CLOSE_WAIT
        for one in running:
            one.ended.wait(max(0.0, end - time.monotonic()))

    def _start(
        self, visitor: str, comparison: Comparison, start: Start, *, stepping: bool = False
    ) -> str | None:
        running = _Running(visitor, comparison, RunControl(paused=stepping, timeout=self._patience))
        if self._running.setdefault(visitor, running) is not running:
            return None
        try:
            if self._closed:
                raise PlaygroundError("the server is shutting down; try again in a moment")
            updates = start(running.control)
        except PlaygroundError as error:
            self._forget(running)
            return _value(error=str(error))
        except Exception:
            traceback.print_exc()
            self._forget(running)
            return _value(error=FAILED)
        self._writing[comparison.feed.id] = running
        self._set_state(running)
        threading.Thread(target=self._write, args=(running, updates), daemon=True).start()
        self._stop_unread(running, self._lost_wait)
        return self.show(visitor, comparison)

    def _write(self, running: _Running, updates: Iterable[Update]) -> None:
        """Run, and append everything to the feed."""
        comparison, control = running.comparison, running.control
        feed = comparison.feed

        watch, failed = self._monitoring.watch(comparison.model), True
        waited: list[Place] = []

        def wait(place: Place) -> None:
            waited.append(place)
            feed.set_status(_waiting(place))

        try:
            with self._queue.turn(running.visitor, lambda: control.stopped, wait):
                watch.started()
                if waited:
                    self._set_state(running)
                arrived: SimpleQueue[Any] = SimpleQueue()
                read_ahead(updates, arrived)
                for batch in batches(arrived, REFRESH):
                    comparison.add_updates(batch)
                    watch.add(batch)
            feed.set_status(_outcome(running))
            failed = False
        except PlaygroundError as error:
            feed.set_status(str(error), error=True)
        except Exception:
            traceback.print_exc()
            feed.set_status(FAILED, error=True)
        watch.ended(failed=failed)
        self._forget(running)
        feed.set_state("over")
        running.ended.set()

    def _forget(self, running: _Running) -> None:
        """Let the visitors of runs that have ended start others."""
        self._writing.pop(running.comparison.feed.id, None)
        for visitor, other in list(self._running.items()):
            if other is running:
                self._running.pop(visitor, None)


def _value(**data: str) -> str:
    """A value of the live view. Each differs from the last one, so that Gradio reports it."""
    return json.dumps({**data, "id": uuid.uuid4().hex})


def _waiting(place: Place) -> str:
    others = "another comparison" if place.ahead == 1 else f"{place.ahead} other comparisons"
    about = "" if place.seconds is None else f", in about {max(1, place.seconds):,.0f} s"
    return f"Waiting for {others} to end{about}."


def _outcome(running: _Running) -> str:
    control, traces = running.control, running.comparison.traces
    failed = sum(trace.error is not None for trace in traces)
    if control.timed_out:
        waited = f"{control.timeout:,.0f} seconds"
        return f"Stopped after a pause of {waited}. The text so far is kept."
    if running.reason:
        return f"Stopped because {running.reason}. The text so far is kept."
    if any(trace.stop.rule == "cancelled" for trace in traces):
        return "Stopped. The text so far is kept."
    seconds = max((trace.seconds for trace in traces), default=0.0)
    return f"Done in {seconds:.1f} s" + (f"; {failed} of {len(traces)} failed." if failed else ".")
