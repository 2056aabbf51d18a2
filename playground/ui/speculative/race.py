"""The race: from the button to the last lane's end, and what can be asked of it afterwards.

Knows the parts of the section, and that races wait for each other. Refuses to time anything: each
entrant's run does that itself.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import gradio as gr

from playground import Playground
from playground.speculation.race import Race, RaceUpdate, race
from playground.ui import assets
from playground.ui.compare.components import Values
from playground.ui.shared.job_controls import Bench, Drawn, bench
from playground.ui.shared.jobs import Jobs, Tell
from playground.ui.speculative.form import Form
from playground.ui.speculative.lanes import Screen, nothing

T = TypeVar("T")

_REFRESH = 0.2  # seconds between two screens
_WAITING = "Somebody else's race is on: races run one at a time, so that their times are their own."


class Track:
    """Where one race runs at a time, whoever asked for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def enter(self, stop: threading.Event, tell: Tell) -> bool:
        """Wait for the track to be free; False for whoever gave up first."""
        told = False
        while not self._lock.acquire(timeout=0.2):
            if stop.is_set():
                return False
            if not told:
                tell(_WAITING)
            told = True
        return True

    def leave(self) -> None:
        """Make room for the next one."""
        self._lock.release()

    def turns(self, steps: Iterator[T], stop: threading.Event, tell: Tell) -> Iterator[T]:
        """Take steps that are timed each for itself, letting others run in between."""
        while self.enter(stop, tell):
            try:
                step = next(steps, None)
            finally:
                self.leave()
            if step is None:
                return
            yield step


@dataclass(frozen=True, eq=False)
class Kept(Generic[T]):
    """What stays on the server between two events. Gradio hashes what it keeps, and a race holds
    what has no hash: this is only ever equal to itself."""

    value: T


@dataclass(frozen=True)
class Course:
    """The parts of the section; ``ran`` is the `Race`, `Kept`."""

    bench: Bench
    lanes: gr.HTML
    ran: gr.State

    @property
    def outputs(self) -> list[Any]:
        """What a race changes while it runs."""
        return [*self.bench.outputs, self.lanes, self.ran]


def section() -> Course:
    """The buttons and the lanes."""
    buttons = bench("spec", "Race")
    lanes = gr.HTML(
        value=nothing(),
        html_template=assets.text("speculative/web/race.html"),
        css_template=assets.text("shared/web/toolbar.css", "speculative/web/race.css"),
        js_on_load=assets.mount("speculative/web/race.js"),
        apply_default_css=False,
        elem_id="spec-lanes",
    )
    return Course(buttons, lanes, gr.State(None))


def run(
    course: Course,
    form: Form,
    jobs: Jobs,
    track: Track,
    lab: Playground,
    values: Values,
    visitor: str,
) -> Iterator[Drawn]:
    """A race, screen by screen, then its outcome."""
    prompt, shared = form.text(values), form.shared(values)
    racing = form.chosen(lab, values)
    screen = Screen(racing, shared["max_new_tokens"])

    def work(stop: threading.Event, tell: Tell) -> None:
        if not track.enter(stop, tell):
            return
        try:
            for news in race(lab, prompt, racing, stop=stop, **shared):
                tell(news)
        finally:
            track.leave()

    result: Race | None = None
    for batch in jobs.follow(visitor, work, _REFRESH):
        for news in batch:
            if isinstance(news, RaceUpdate):
                screen.hear(news)
                result = news.result or result
        words = [news for news in batch if isinstance(news, str)]
        yield {course.lanes: screen.told(), **course.bench.say(words[-1] if words else "")}
    if result is None:
        yield course.bench.say("Stopped before anybody ran.")
        return
    yield {**course.bench.say(_finish(result)), course.ran: Kept(result)}


def _finish(result: Race) -> str:
    """Who was fastest."""
    best = result.winner
    if best is None:
        return "Nobody reached the end; each lane says why."
    times = result.speed_up(best)
    cut = [one for one in result.lanes if one.trace and one.trace.stop.rule == "cancelled"]
    stopped = "Stopped. " if cut else ""
    held = "" if times is None or best.drafter.plain else f", {times:.2f} times plain decoding"
    rate = best.tokens_per_second or 0.0
    return f"{stopped}{best.drafter.name} was fastest: {rate:.1f} tokens a second{held}."
