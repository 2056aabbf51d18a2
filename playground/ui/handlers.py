"""What happens between Run and the last token: updates in, screens out, and a way to stop.

Knows the lab, the feed and whose run is whose. Refuses to know layout and components, but for
Gradio's message to the visitor: here a `PlaygroundError` becomes words on the page.
"""

from __future__ import annotations

import html
import queue
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import gradio as gr

from engine.errors import PlaygroundError
from engine.trace import Trace
from playground import Playground
from playground.ui.live import Feed

REFRESH = 0.1  # seconds between two screens; a faster page only makes the browser fall behind
WHOLE = 50  # every so many screens the feed is sent whole, for browsers that missed one

_T = TypeVar("_T")


@dataclass(frozen=True)
class Wish:
    """What a visitor asked for, and the name and settings to head each run's column with."""

    prompt: str | list[dict[str, str]]
    runs: Sequence[tuple[str, Mapping[str, Any]]]
    shared: Mapping[str, Any]
    headings: Sequence[tuple[str, str]]


class Runs:
    """The comparisons going on, one for each visitor, and what the last ones gave."""

    def __init__(self) -> None:
        self._stops: dict[str, threading.Event] = {}
        self._traces: dict[str, tuple[Trace, ...]] = {}

    def going(self, visitor: str) -> bool:
        """Whether the visitor has a comparison going on."""
        return visitor in self._stops

    def stop(self, visitor: str) -> None:
        """End the visitor's comparison within one tick; what was written stays."""
        if stop := self._stops.get(visitor):
            stop.set()

    def traces(self, visitor: str) -> tuple[Trace, ...] | None:
        """What the visitor's last comparison gave, handed out once."""
        return self._traces.pop(visitor, None)

    def forget(self, visitor: str) -> None:
        """The visitor has left."""
        self.stop(visitor)
        self._traces.pop(visitor, None)

    def compare(self, lab: Playground, visitor: str, ask: Callable[[], Wish]) -> Iterator[str]:
        """Run what the visitor asks for; gives the live view's values, one screen after the other.

        Closing the iterator stops the run. A visitor who has one going on gets no second.
        """
        stop = threading.Event()
        if self._stops.setdefault(visitor, stop) is not stop:
            return
        feed = Feed()
        try:
            feed.say("Starting …")
            yield feed.take()
            self._traces[visitor] = yield from _watch(lab, ask(), feed, stop)
        except PlaygroundError as error:
            # The toast reads HTML, the status line does not.
            gr.Warning(html.escape(str(error)))
            feed.say(str(error), error=True)
        except Exception:
            traceback.print_exc()
            feed.say("The program failed; the server's log says where.", error=True)
        finally:
            stop.set()
            if self._stops.get(visitor) is stop:  # not if a second comparison has taken its place
                del self._stops[visitor]
        feed.over()
        yield feed.take(whole=True)


def _watch(
    lab: Playground, wish: Wish, feed: Feed, stop: threading.Event
) -> Generator[str, None, tuple[Trace, ...]]:
    """Feed the live columns until every run has ended; returns their traces in order."""
    ended: dict[int, Trace] = {}
    news = lab.stream(wish.prompt, wish.runs, stop=stop, **wish.shared)
    for number, updates in enumerate(batches(news, REFRESH)):
        if number == 0:
            # Only now is the wish known to be sound; until here the last comparison is shown.
            feed.columns(wish.headings)
            feed.say("Writing …")
        feed.add(updates)
        ended |= {update.run: update.trace for update in updates if update.trace}
        yield feed.take(whole=number % WHOLE == WHOLE - 1)
    traces = tuple(ended[run] for run in sorted(ended))
    feed.say(_verdict(traces))
    return traces


def _verdict(traces: Sequence[Trace]) -> str:
    failed = sum(trace.error is not None for trace in traces)
    if any(trace.stop.rule == "cancelled" for trace in traces):
        return "Stopped. What was written until then stays."
    seconds = max((trace.seconds for trace in traces), default=0.0)
    return f"Done in {seconds:.1f} s" + (f"; {failed} of {len(traces)} failed." if failed else ".")


class _End(NamedTuple):
    error: BaseException | None = None


def batches(source: Iterable[_T], seconds: float) -> Iterator[list[_T]]:
    """What has arrived, at most once in so many seconds; nothing waits for what comes after it.

    The source is read ahead in a thread of its own, which ends when the source does.
    """
    arrived: queue.SimpleQueue[_T | _End] = queue.SimpleQueue()
    threading.Thread(target=_pump, args=(source, arrived), daemon=True).start()
    due = 0.0
    while True:
        items = [arrived.get()]
        time.sleep(max(0.0, due - time.monotonic()))
        due = time.monotonic() + seconds
        while not arrived.empty():
            items.append(arrived.get())
        if batch := [item for item in items if not isinstance(item, _End)]:
            yield batch
        if isinstance(end := items[-1], _End):
            if end.error:
                raise end.error
            return


def _pump(source: Iterable[_T], arrived: queue.SimpleQueue[_T | _End]) -> None:
    try:
        for item in source:
            arrived.put(item)
        arrived.put(_End())
    except BaseException as error:
        arrived.put(_End(error))
