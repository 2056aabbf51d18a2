"""The race: each drafter runs alone, and the lanes show its tokens as they come."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import gradio as gr

from playground import Playground
from playground.speculation.race import Race, RaceUpdate, race
from playground.ui import assets
from playground.ui.shared.events import StateValue, Updates, Values
from playground.ui.shared.jobs import JobControls, Jobs, Report
from playground.ui.speculative.form import Form
from playground.ui.speculative.lanes import LaneView, empty_lanes

T = TypeVar("T")

_REFRESH = 0.2  # seconds between two updates of the lanes
_WAITING = "Waiting for another visitor's race: timed runs do not overlap."


class TimedRuns:
    """Lets one timed run go at a time, so that no other run distorts its time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def acquire(self, stop: threading.Event, report: Report) -> bool:
        """Wait for the other run to end; False if ``stop`` was set meanwhile."""
        reported = False
        while not self._lock.acquire(timeout=0.2):
            if stop.is_set():
                return False
            if not reported:
                report(_WAITING)
            reported = True
        return True

    def release(self) -> None:
        """Let the next run go."""
        self._lock.release()

    def one_by_one(self, runs: Iterator[T], stop: threading.Event, report: Report) -> Iterator[T]:
        """Yield from an iterator that does one timed run per item; others may run in between."""
        while self.acquire(stop, report):
            try:
                item = next(runs, None)
            finally:
                self.release()
            if item is None:
                return
            yield item


@dataclass(frozen=True)
class RaceSection:
    """The components of the section."""

    controls: JobControls
    lanes: gr.HTML
    result: gr.State  # a `StateValue[Race]`


def build_race(controls: JobControls) -> RaceSection:
    """The lanes; ``controls`` are the buttons of the form."""
    lanes = gr.HTML(
        value=empty_lanes(),
        html_template=assets.text("speculative/web/race.html"),
        css_template=assets.text("shared/web/toolbar.css", "speculative/web/race.css"),
        js_on_load=assets.mount("speculative/web/race.js"),
        apply_default_css=False,
        elem_id="spec-lanes",
    )
    return RaceSection(controls, lanes, gr.State(None))


def run_race(
    section: RaceSection,
    form: Form,
    jobs: Jobs,
    timed: TimedRuns,
    lab: Playground,
    values: Values,
    visitor: str,
) -> Iterator[Updates]:
    """Run a race; yields the lanes, then the result."""
    prompt, shared = form.prompt_of(values), form.shared_of(values)
    drafters = form.selected(lab, values)
    view = LaneView(drafters, shared["max_new_tokens"])

    def work(stop: threading.Event, report: Report) -> None:
        if not timed.acquire(stop, report):
            return
        try:
            for news in race(lab, prompt, drafters, stop=stop, **shared):
                report(news)
        finally:
            timed.release()

    result: Race | None = None
    for batch in jobs.run(visitor, work, _REFRESH):
        for news in batch:
            if isinstance(news, RaceUpdate):
                view.add(news)
                result = news.result or result
        texts = [news for news in batch if isinstance(news, str)]
        yield {section.lanes: view.value(), **section.controls.status(texts[-1] if texts else "")}
    if result is None:
        yield section.controls.status("Stopped before the first run.")
        return
    yield {**section.controls.status(_outcome(result)), section.result: StateValue(result)}


def _outcome(result: Race) -> str:
    best = result.winner
    if best is None:
        return "No run finished; each lane shows the reason."
    speed_up = result.speed_up(best)
    stopped = [one for one in result.lanes if one.trace and one.trace.stop.rule == "cancelled"]
    start = "Stopped. " if stopped else ""
    compared = "" if speed_up is None or best.drafter.plain else f", a speed-up of {speed_up:.2f}"
    rate = best.tokens_per_second or 0.0
    return f"{start}{best.drafter.name} was fastest: {rate:.1f} tokens/s{compared}."
