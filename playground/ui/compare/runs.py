"""Starts, controls and stores the comparisons of all visitors."""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from engine.errors import PlaygroundError
from engine.run_control import RunControl
from engine.settings import Limits
from engine.trace import Trace, Update
from playground import Playground
from playground.ui.shared.comparison import Column, Comparison, InheritedToken, RunRequest
from playground.ui.shared.messages import FAILED, warn
from playground.ui.shared.throttle import batches, read_ahead

REFRESH = 0.03  # seconds between two updates of a feed
# Seconds between two values that go through Gradio: each takes the browser about 30 ms, however
# small it is. In between, the browser requests the new lines of the feed.
VALUE_INTERVAL = 1.0
_REQUEST_WAIT = 10.0  # seconds such a request waits for new lines
PATIENCE = 600.0  # seconds a paused run waits for its visitor
_STOP_WAIT = 10.0  # seconds a run may take to stop

# Adds columns to a comparison and returns their updates; the control pauses and stops them.
Start = Callable[[RunControl], Iterable[Update]]
# Finds where a fork branches off: the column, and the tokens before the fork's own.
FindFork = Callable[[Comparison, Playground], tuple[Column, Sequence[InheritedToken]]]


@dataclass(frozen=True)
class _Running:
    """Runs in progress."""

    comparison: Comparison
    control: RunControl
    updates: queue.SimpleQueue[Any] = field(default_factory=queue.SimpleQueue)
    ended: threading.Event = field(default_factory=threading.Event)


class Runs:
    """The running and the stored comparisons of all visitors.

    Comparisons are stored for a while after their visitor has left: a page that is reloaded gets
    its comparison back by the feed's id, which cannot be guessed.
    """

    def __init__(self, limits: Limits, patience: float = PATIENCE) -> None:
        self._limits = limits
        self._patience = patience
        self._running: dict[str, _Running] = {}  # by visitor
        self._writing: dict[str, _Running] = {}  # by feed id, until the last line is written
        self._current: dict[str, Comparison] = {}  # by visitor
        self._stored: dict[str, Comparison] = {}  # by feed id; the oldest first

    def is_running(self, visitor: str) -> bool:
        """Whether runs of the visitor are in progress."""
        return visitor in self._running

    def comparison(self, visitor: str) -> Comparison | None:
        """The comparison on the visitor's page."""
        return self._current.get(visitor)

    def stop(self, visitor: str) -> None:
        """Stop the visitor's runs after the current step; their text is kept."""
        if running := self._running.get(visitor):
            running.control.stop()

    def control(self, visitor: str, action: str) -> None:
        """Pause or resume the visitor's runs, or let them take one step."""
        running = self._running.get(visitor)
        if running is None or action not in ("pause", "play", "step"):
            return
        getattr(running.control, action)()
        running.comparison.feed.set_state("paused" if running.control.paused else "playing")
        running.updates.put(None)  # sends the state now, not with the next token

    def leave(self, visitor: str) -> None:
        """Stop the runs of a visitor who has left the page."""
        self.stop(visitor)
        self._current.pop(visitor, None)

    def show(self, visitor: str, comparison: Comparison) -> str:
        """Put a comparison on the visitor's page; returns the live view's value."""
        self._store(visitor, comparison)
        return comparison.feed.take(whole=True)

    def _store(self, visitor: str, comparison: Comparison) -> None:
        self._current[visitor] = comparison
        self._stored.pop(comparison.feed.id, None)
        self._stored[comparison.feed.id] = comparison
        for old in list(self._stored)[: -self._limits.boards]:
            del self._stored[old]

    def resume(self, visitor: str, feed: str) -> str | None:
        """The live view's value for a page that was reloaded; None if nothing is stored.

        Runs that are still in progress are stopped first: no event would send their tokens.
        """
        comparison = self._stored.get(feed)
        if comparison is None or self.is_running(visitor):
            return None
        if running := self._writing.get(feed):
            running.control.stop()
            running.ended.wait(_STOP_WAIT)
        return self.show(visitor, comparison)

    async def lines(self, request: Any) -> str:
        """The lines of a feed that a page has not read; empty if the feed is not stored."""
        if not isinstance(request, Mapping):
            return ""
        feed, start = str(request.get("feed")), request.get("from")
        running = self._writing.get(feed)
        comparison = running.comparison if running else self._stored.get(feed)
        if comparison is None or type(start) is not int or start < 0:
            return ""
        return await comparison.feed.since(start, _REQUEST_WAIT if running else 0.0)

    def compare(
        self,
        lab: Playground,
        visitor: str,
        requests: Callable[[], Sequence[RunRequest]],
        *,
        stepping: bool = False,
    ) -> Iterator[str]:
        """Run a comparison; yields the live view's values.

        Closing the iterator stops the runs. Nothing happens if the visitor has runs in progress.
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

        yield from self._run(visitor, comparison, start, stepping=stepping)

    def fork(
        self, find_lab: Callable[[str], Playground], visitor: str, find_fork: FindFork
    ) -> Iterator[str]:
        """Continue one of the visitor's columns from another token, in a new column."""
        comparison = self._current.get(visitor)
        if comparison is None:
            warn("The server no longer stores these runs. Run them again to fork them.")
            return

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

        yield from self._run(visitor, comparison, start)

    def _run(
        self, visitor: str, comparison: Comparison, start: Start, *, stepping: bool = False
    ) -> Iterator[str]:
        running = _Running(comparison, RunControl(paused=stepping, timeout=self._patience))
        if self._running.setdefault(visitor, running) is not running:
            return
        feed = comparison.feed
        self._writing[feed.id] = running
        arrived: Iterator[list[Update]] = iter(())
        try:
            feed.set_status("Starting …")
            yield feed.take()
            updates = start(running.control)
            self._store(visitor, comparison)
            feed.set_state("paused" if stepping else "playing")
            feed.set_status("Generating …")
            read_ahead(updates, running.updates)
            arrived = batches(running.updates, REFRESH)
            due = 0.0
            for batch in arrived:
                comparison.add_updates(batch)
                # While runs are paused, the page requests no lines.
                if running.control.paused or time.monotonic() >= due:
                    yield feed.take()
                    due = time.monotonic() + VALUE_INTERVAL
            feed.set_status(_outcome(comparison.traces, running.control))
        except PlaygroundError as error:
            warn(str(error))
            feed.set_status(str(error), error=True)
        except GeneratorExit:
            self._free(visitor, running)
            # In a thread: the caller must not wait for the end of a forward pass.
            threading.Thread(target=self._finish_unseen, args=(running, arrived)).start()
            raise
        except Exception:
            traceback.print_exc()
            feed.set_status(FAILED, error=True)
        self._free(visitor, running)
        self._end(running)
        yield feed.take()

    def _finish_unseen(self, running: _Running, arrived: Iterable[list[Update]]) -> None:
        """Store the last updates of runs whose page was closed."""
        try:
            for batch in arrived:
                running.comparison.add_updates(batch)
            running.comparison.feed.set_status(
                "Stopped because the page was closed. The text so far is kept."
            )
        finally:
            self._end(running)

    def _free(self, visitor: str, running: _Running) -> None:
        """Stop runs and let their visitor start others."""
        running.control.stop()
        if self._running.get(visitor) is running:  # not if other runs have taken their place
            del self._running[visitor]

    def _end(self, running: _Running) -> None:
        """Write the last line of a feed."""
        running.comparison.feed.set_state("over")
        self._writing.pop(running.comparison.feed.id, None)
        running.ended.set()


def _outcome(traces: Sequence[Trace], control: RunControl) -> str:
    failed = sum(trace.error is not None for trace in traces)
    if control.timed_out:
        waited = f"{control.timeout:,.0f} seconds"
        return f"Stopped after a pause of {waited}. The text so far is kept."
    if any(trace.stop.rule == "cancelled" for trace in traces):
        return "Stopped. The text so far is kept."
    seconds = max((trace.seconds for trace in traces), default=0.0)
    return f"Done in {seconds:.1f} s" + (f"; {failed} of {len(traces)} failed." if failed else ".")
