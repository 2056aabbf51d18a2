"""Races drafters: each runs alone, one after the other, so that its time is its own.

A short warm-up run processes the prompt before the clock starts; its time is reported separately.
The time a consumer takes for an update counts for the drafter, so consume updates at once and do
the work elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from engine.errors import PlaygroundError
from engine.prompt import Chat
from engine.trace import Trace, Update
from engine.trace.rounds import arrivals, prompt_ms
from playground.lab import Playground
from playground.speculation.accounting import Accounting, accounting
from playground.speculation.drafters import Drafter, available_drafters
from playground.stopping import Stop

WARM_UP = 4  # tokens generated before the clock starts


@dataclass(frozen=True)
class Lane:
    """One drafter's run. ``arrivals`` are the times of the tokens in ms after the start; ``error``
    says why the drafter did not run."""

    drafter: Drafter
    trace: Trace | None = None
    arrivals: tuple[float, ...] = ()
    prompt_ms: float = 0.0
    error: str | None = None

    @property
    def seconds(self) -> float:
        """The time for the text, without the prompt."""
        return self.arrivals[-1] / 1000 if self.arrivals else 0.0

    @property
    def tokens_per_second(self) -> float | None:
        """The speed, without the prompt."""
        return len(self.arrivals) / self.seconds if self.seconds else None

    @property
    def accounting(self) -> Accounting | None:
        """The counts of drafted tokens and forward passes."""
        return accounting(self.trace) if self.trace else None

    def written(self, ms: float) -> int:
        """The number of tokens ``ms`` milliseconds after the start."""
        return sum(arrival <= ms for arrival in self.arrivals)


@dataclass(frozen=True)
class Race:
    """All lanes, in the order they ran."""

    lanes: tuple[Lane, ...]

    @property
    def plain(self) -> Lane | None:
        """The lane of plain decoding, if it took part."""
        return next((lane for lane in self.lanes if lane.drafter.plain and lane.trace), None)

    def speed_up(self, lane: Lane) -> float | None:
        """The speed of a lane divided by that of plain decoding."""
        plain = self.plain.tokens_per_second if self.plain else None
        own = lane.tokens_per_second
        return own / plain if own and plain else None

    @property
    def winner(self) -> Lane | None:
        """The fastest lane."""
        ran = [lane for lane in self.lanes if lane.tokens_per_second]
        return max(ran, key=lambda lane: lane.tokens_per_second or 0.0, default=None)


@dataclass(frozen=True)
class RaceUpdate:
    """An event of a race. ``seconds`` are since the drafter's start, 0 during its warm-up;
    ``update`` comes from the engine, ``lane`` when a drafter ends, ``result`` at the very end."""

    place: int
    drafter: Drafter
    seconds: float = 0.0
    update: Update | None = None
    lane: Lane | None = None
    result: Race | None = None


def race(
    lab: Playground,
    prompt: str | Chat,
    drafters: Sequence[Drafter] | None = None,
    *,
    stop: Stop | None = None,
    **shared: Any,
) -> Iterator[RaceUpdate]:
    """Run drafters one after the other; all available ones by default.

    ``shared`` are settings of every run, such as ``max_new_tokens`` and ``seed``. Setting ``stop``
    ends the race within a tick: the result has the lanes so far, the last one cut short. A drafter
    that cannot run gets a lane with an error.
    """
    running = available_drafters(lab) if drafters is None else tuple(drafters)
    if not running:
        raise PlaygroundError("there is no drafter to run; select at least one")
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
        warm_up_ms = _warm_up(lab, prompt, drafter, stop, shared)
        updates = lab.stream(prompt, [drafter.choice], stop=stop, **shared)
        since, trace = time.perf_counter(), None
        with closing(updates):  # type: ignore[type-var]  # a generator, typed as an iterator
            for update in updates:
                trace = update.trace
                yield RaceUpdate(place, drafter, time.perf_counter() - since, update)
    except PlaygroundError as error:
        return Lane(drafter, error=str(error))
    if trace is None or trace.error:
        return Lane(drafter, trace, error=trace.error if trace else "the run ended without a trace")
    return Lane(drafter, trace, arrivals(trace), warm_up_ms + prompt_ms(trace))


def _warm_up(
    lab: Playground,
    prompt: str | Chat,
    drafter: Drafter,
    stop: Stop | None,
    shared: dict[str, Any],
) -> float:
    """Process the prompt and generate a few tokens; return the ms for the prompt."""
    few = {**shared, "max_new_tokens": min(WARM_UP, shared.get("max_new_tokens", WARM_UP))}
    ended = [
        update.trace
        for update in lab.stream(prompt, [drafter.choice], stop=stop, **few)
        if update.trace
    ]
    return sum(prompt_ms(trace) for trace in ended)
