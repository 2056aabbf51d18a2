"""A race of drafters: each runs alone, one after the other, so that its time is its own.

Knows when each token arrived, so that all lanes can be replayed on one clock. Refuses to draw. What
reading the prompt took is reported apart: a short run before each one's own has the prompt read
and everything warm, and clocks start after that. Whoever takes the news is on the clock, so it is
to be taken at once and worked on elsewhere.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from engine.errors import PlaygroundError
from engine.prompt import Chat
from engine.run_control import RunControl
from engine.trace import Trace, Update
from engine.trace.rounds import arrivals, prompt_ms
from playground.lab import Playground
from playground.speculation.accounting import Accounting, accounting
from playground.speculation.drafters import Drafter, available_drafters

Stop = threading.Event | RunControl

WARM_UP = 4  # tokens written before the clock starts


@dataclass(frozen=True)
class Lane:
    """One entrant's run. ``arrivals`` has the ms after the start at which each token was there;
    ``error`` says why an entrant has no run."""

    drafter: Drafter
    trace: Trace | None = None
    arrivals: tuple[float, ...] = ()
    prompt_ms: float = 0.0
    error: str | None = None

    @property
    def seconds(self) -> float:
        """What its text took, the prompt apart."""
        return self.arrivals[-1] / 1000 if self.arrivals else 0.0

    @property
    def tokens_per_second(self) -> float | None:
        """How fast it wrote."""
        return len(self.arrivals) / self.seconds if self.seconds else None

    @property
    def accounting(self) -> Accounting | None:
        """What it drafted and what came of that."""
        return accounting(self.trace) if self.trace else None

    def written(self, ms: float) -> int:
        """How many tokens it had so long after its start."""
        return sum(arrival <= ms for arrival in self.arrivals)


@dataclass(frozen=True)
class Race:
    """Everyone's run, in the order of starting."""

    lanes: tuple[Lane, ...]

    @property
    def plain(self) -> Lane | None:
        """The run that drafts nothing, if it was in the race."""
        return next((lane for lane in self.lanes if lane.drafter.plain and lane.trace), None)

    def speed_up(self, lane: Lane) -> float | None:
        """How many times as fast a lane was as plain decoding, in tokens a second."""
        usual = self.plain.tokens_per_second if self.plain else None
        own = lane.tokens_per_second
        return own / usual if own and usual else None

    @property
    def winner(self) -> Lane | None:
        """Who wrote fastest."""
        ran = [lane for lane in self.lanes if lane.tokens_per_second]
        return max(ran, key=lambda lane: lane.tokens_per_second or 0.0, default=None)


@dataclass(frozen=True)
class RaceUpdate:
    """What happened. ``seconds`` are since this entrant's start, 0 while it warms up; ``update`` is
    the engine's own; ``lane`` comes with an entrant's end, and ``result`` last of all."""

    place: int
    drafter: Drafter
    seconds: float = 0.0
    update: Update | None = None
    lane: Lane | None = None
    result: Race | None = None


def race(
    lab: Playground,
    prompt: str | Chat,
    all_drafters: Sequence[Drafter] | None = None,
    *,
    stop: Stop | None = None,
    **shared: Any,
) -> Iterator[RaceUpdate]:
    """Let entrants write, one after the other; all that can, where none are named.

    ``shared`` are settings of all of them, such as ``max_new_tokens`` and ``seed``. Setting
    ``stop`` ends the race within a tick: the result then has the lanes there were, the last one
    cut short. An entrant that cannot run has a lane that says why.
    """
    running = available_drafters(lab) if all_drafters is None else tuple(all_drafters)
    if not running:
        raise PlaygroundError("nobody is in the race; choose who runs")
    return _race(lab, prompt, running, stop, shared)


def _race(
    lab: Playground,
    prompt: str | Chat,
    running: Sequence[Drafter],
    stop: Stop | None,
    shared: dict[str, Any],
) -> Iterator[RaceUpdate]:
    lanes: list[Lane] = []
    for place, drafter in enumerate(running):
        if stop is not None and stop.is_set():
            break
        yield RaceUpdate(place, drafter)
        lane = yield from _lane(lab, prompt, place, drafter, stop, shared)
        lanes.append(lane)
        yield RaceUpdate(place, drafter, lane.seconds, lane=lane)
    last = len(lanes) - 1
    yield RaceUpdate(max(last, 0), running[max(last, 0)], result=Race(tuple(lanes)))


def _lane(
    lab: Playground,
    prompt: str | Chat,
    place: int,
    drafter: Drafter,
    stop: Stop | None,
    shared: dict[str, Any],
) -> Generator[RaceUpdate, None, Lane]:
    if drafter.unavailable_reason:
        return Lane(drafter, error=drafter.unavailable_reason)
    try:
        read = _warm(lab, prompt, drafter, stop, shared)
        updates = lab.stream(prompt, [drafter.choice], stop=stop, **shared)
        since, trace = time.perf_counter(), None
        with closing(updates):  # type: ignore[type-var]  # a generator, told as an iterator
            for update in updates:
                trace = update.trace
                yield RaceUpdate(place, drafter, time.perf_counter() - since, update)
    except PlaygroundError as error:
        return Lane(drafter, error=str(error))
    if trace is None or trace.error:
        return Lane(drafter, trace, error=trace.error if trace else "it did not run")
    return Lane(drafter, trace, arrivals(trace), read + prompt_ms(trace))


def _warm(
    lab: Playground,
    prompt: str | Chat,
    drafter: Drafter,
    stop: Stop | None,
    shared: dict[str, Any],
) -> float:
    """Have the prompt read and a few tokens written; gives the ms that reading took."""
    asked = shared.get("max_new_tokens", WARM_UP)
    few = {**shared, "max_new_tokens": min(WARM_UP, asked)}
    ended = [
        update.trace
        for update in lab.stream(prompt, [drafter.choice], stop=stop, **few)
        if update.trace
    ]
    return sum(prompt_ms(trace) for trace in ended)
