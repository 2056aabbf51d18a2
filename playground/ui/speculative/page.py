"""Builds the Speculative page and connects its events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gradio as gr

from engine.settings import Limits
from playground import Playground
from playground.speculation.race import Lane, Race
from playground.ui.shared import html
from playground.ui.shared.controls import PROMPT_KINDS
from playground.ui.shared.events import EVERY, QUICK, QUIET, StateValue, Updates, Values, visitor
from playground.ui.shared.jobs import JOB, JobControls, Jobs, loaded_lab
from playground.ui.shared.messages import shows_errors
from playground.ui.shared.model_loading import Labs
from playground.ui.shared.pages import App, ComparisonEvents
from playground.ui.speculative import results
from playground.ui.speculative.draft_length import (
    DraftLengthSection,
    build_draft_length,
    measure_grid,
    measure_temperatures,
)
from playground.ui.speculative.examples import EXAMPLES, Example
from playground.ui.speculative.form import Form, build_form
from playground.ui.speculative.losslessness import (
    LosslessnessSection,
    build_losslessness,
    compare_texts,
    run_test,
)
from playground.ui.speculative.race import RaceSection, TimedRuns, build_race, run_race
from playground.ui.speculative.rounds import RoundsSection, build_rounds

_DESCRIPTION = (
    "A drafter proposes several tokens, and the model verifies them in one forward pass. Race to "
    "measure whether that is faster."
)
_RESULT, _ROUNDS = "result", "inside"  # tabs whose figures are drawn when they are opened

# One at a time: a link and a model may arrive in either order, and the later must see the earlier.
_MODEL_CHANGE: dict[str, Any] = {**QUIET, "concurrency_limit": 1, "concurrency_id": "race form"}
_MAX_JOBS = 8  # of each timed kind; most of them wait
_MAX_TESTS = 2

# A job: its updates for a lab, the values of the form, and a visitor.
Work = Callable[[Playground, Values, str], Iterator[Updates]]


@dataclass(frozen=True)
class SpeculativePage:
    """The components of the page."""

    app: App
    linked_form: Form
    race: RaceSection
    result: gr.HTML
    timeline: gr.Plot
    which: gr.Radio  # the drafter whose details are shown
    rounds: RoundsSection
    losslessness: LosslessnessSection
    draft_length: DraftLengthSection
    tabs: Mapping[str, gr.Tab]
    open_tab: gr.State  # its id

    def connect(self, tab: gr.Tab, comparison: ComparisonEvents) -> None:
        """Connect all sections."""
        self._connect_form()
        self._connect_sent(str(tab.id), comparison)
        self._connect_jobs()
        self._connect_details()

    def _connect_sent(self, page: str, comparison: ComparisonEvents) -> None:
        """Show the prompt and the settings of a column that is sent to this page."""
        form = self.linked_form

        @shows_errors
        def receive(event: gr.EventData, request: gr.Request) -> Updates:
            sent = comparison.sent_column(page, event, request)
            return {form.point: gr.skip()} if sent is None else form.receive(sent)

        comparison.sent(receive, None, form.received, **EVERY)
        form.back.connect(page, comparison)

    def _connect_form(self) -> None:
        form, loaded = self.linked_form, self.app.model.loaded
        menus = [self.losslessness.drafter, self.draft_length.drafter]

        def show_model(
            name: str, selected: list[str], from_link: list[str] | None, layer: int
        ) -> Updates:
            if not name:
                return {form.missing: gr.skip()}
            lab = self.app.labs.lab(name)
            names = form.available(lab)
            first = names[0] if names else None
            others: Updates = {menu: gr.Dropdown(choices=names, value=first) for menu in menus}
            return {**form.show_model(lab, from_link or selected or None, layer), **others}

        def follow_link(
            name: str, selected: list[str], from_link: list[str] | None, layer: int
        ) -> Updates:
            return show_model(name if from_link else "", selected, from_link, layer)

        inputs = [loaded, form.drafters, form.from_link, form.layer]
        outputs = [form.drafters, form.missing, form.layer, *menus]
        loaded.change(show_model, inputs, outputs, **_MODEL_CHANGE)
        form.from_link.change(follow_link, inputs, outputs, **_MODEL_CHANGE)
        form.drafters.input(lambda: None, None, form.from_link, **QUICK)
        form.sampling.change(
            lambda on: gr.Slider(visible=on), form.sampling, form.temperature, **QUICK
        )
        filled = [form.prompt, form.kind, form.point, form.tokens, form.sampling, form.temperature]
        for button, example in zip(form.examples, EXAMPLES, strict=True):
            button.click(_fill(example, self.app.limits), None, filled, **QUICK)

    def _connect_jobs(self) -> None:
        """Connect the buttons that start jobs, each with its Stop button."""
        form, timed, section = self.linked_form, TimedRuns(), self.draft_length
        races, grids, samples = (
            Jobs(name, _MAX_JOBS) for name in ("a race", "a grid", "a measurement")
        )
        tests = Jobs("a test", _MAX_TESTS)

        def race(lab: Playground, values: Values, who: str) -> Iterator[Updates]:
            return run_race(self.race, form, races, timed, lab, values, who)

        def test(lab: Playground, values: Values, who: str) -> Iterator[Updates]:
            return run_test(self.losslessness, form, tests, lab, values, who)

        def grid(lab: Playground, values: Values, who: str) -> Iterator[Updates]:
            return measure_grid(section, form, grids, timed, lab, values, who)

        def temperature(lab: Playground, values: Values, who: str) -> Iterator[Updates]:
            return measure_temperatures(section, form, samples, timed, lab, values, who)

        tested: set[Any] = {self.losslessness.drafter, self.losslessness.samples}
        measured: set[Any] = {section.drafter, section.tokens}
        self._connect_job(
            self.race.controls, races, race, set(), [self.race.lanes, self.race.result]
        )
        self._connect_job(
            self.losslessness.controls, tests, test, tested, [self.losslessness.result]
        )
        self._connect_job(section.grid_controls, grids, grid, measured, [section.grid_result])
        self._connect_job(
            section.temperature_controls,
            samples,
            temperature,
            measured,
            [section.temperature_result],
        )

    def _connect_job(
        self, controls: JobControls, jobs: Jobs, work: Work, fields: set[Any], outputs: list[Any]
    ) -> None:
        app = self.app
        listener = _start(controls, work, app.labs, app.model.loaded)
        inputs = {*self.linked_form.inputs, app.model.loaded, *fields}
        controls.start[0].click(listener, inputs, [*controls.outputs, *outputs], **JOB)
        jobs.connect_stop(controls.stop)

    def _connect_details(self) -> None:
        """Connect what is shown after a race."""
        result, which = self.race.result, self.which

        def finish(held: StateValue[Race] | None, opened: str) -> Updates:
            if held is None:  # a forged event: there was no race
                return {self.result: gr.skip()}
            race = held.value
            drafted = [lane for lane in race.lanes if _drafted(lane)]
            best = max(drafted, key=lambda lane: lane.tokens_per_second or 0.0, default=None)
            name = best.drafter.name if best else None
            names = [lane.drafter.name for lane in drafted]
            return {
                self.result: results.tables(race),
                which: gr.Radio(choices=names, value=name, visible=bool(names)),
                **self._details(race, name, opened),
            }

        def show(held: StateValue[Race] | None, name: str | None, opened: str) -> Updates:
            return self._details(held.value if held else None, name, opened)

        def opening(tab: str) -> Callable[..., Updates]:
            def listener(held: StateValue[Race] | None, name: str | None) -> Updates:
                return {self.open_tab: tab, **show(held, name, tab)}

            return listener

        details = [self.losslessness.comparison, self.timeline, *self.rounds.outputs]
        result.change(finish, [result, self.open_tab], [self.result, which, *details], **QUICK)
        which.input(show, [result, which, self.open_tab], details, **QUICK)
        for name, tab in self.tabs.items():
            tab.select(opening(name), [result, which], [self.open_tab, *details], **EVERY)
        section = self.draft_length
        section.grid_result.change(
            section.draw, section.grid_result, [section.figure_area, section.figure], **QUICK
        )

    def _details(self, race: Race | None, name: str | None, opened: str) -> Updates:
        """What the tabs show of one drafter; figures only in the open tab."""
        lanes = race.lanes if race else ()
        lane = next((one for one in lanes if one.drafter.name == name), None)
        figures: Updates = self.rounds.draw(race, lane) if opened == _ROUNDS else {}
        if opened == _RESULT and race is not None and race.winner is not None:
            figures = {self.timeline: gr.Plot(value=results.figure(race), visible=True)}
        return {self.losslessness.comparison: compare_texts(race, lane), **figures}


def build(app: App) -> SpeculativePage:
    """Build the page."""
    gr.Markdown(_DESCRIPTION, elem_classes="summary")
    with gr.Row(equal_height=False, elem_id="spec-page"):
        with gr.Column(elem_id="spec-form"):
            form, controls = build_form(app.limits)
        with gr.Column(elem_id="spec-course"):
            race = build_race(controls)
    which = gr.Radio(
        [], label="Show details of", interactive=True, visible=False, elem_id="spec-which"
    )
    tabs: dict[str, gr.Tab] = {}
    with gr.Tabs(elem_id="spec-tabs", overflow_behavior="wrap"):
        with gr.Tab("Result", id=_RESULT) as tabs[_RESULT]:
            result = gr.HTML(
                html.note(results.EMPTY), elem_id="spec-results", elem_classes="lab-output"
            )
            with gr.Row(elem_classes="figures"):
                timeline = gr.Plot(
                    show_label=False, container=False, visible=False, elem_id="spec-clock"
                )
        with gr.Tab("Rounds", id=_ROUNDS) as tabs[_ROUNDS]:
            rounds = build_rounds()
        with gr.Tab("Losslessness", id="proof") as tabs["proof"]:
            losslessness = build_losslessness()
        with gr.Tab("Draft length", id="ahead") as tabs["ahead"]:
            draft_length = build_draft_length(app.limits)
    return SpeculativePage(
        app=app,
        linked_form=form,
        race=race,
        result=result,
        timeline=timeline,
        which=which,
        rounds=rounds,
        losslessness=losslessness,
        draft_length=draft_length,
        tabs=tabs,
        open_tab=gr.State(_RESULT),
    )


def _fill(example: Example, limits: Limits) -> Callable[[], tuple[Any, ...]]:
    sampled = example.temperature is not None
    tokens = min(example.max_new_tokens, limits.max_new_tokens)

    def fill() -> tuple[Any, ...]:
        value: dict[str, Any] = {"value": example.temperature} if sampled else {}
        slider = gr.update(visible=sampled, **value)
        kind = PROMPT_KINDS[example.chat]
        return example.prompt, kind, example.point, tokens, sampled, slider

    return fill


def _start(
    controls: JobControls, work: Work, labs: Labs, loaded: gr.State
) -> Callable[..., Iterator[Updates]]:
    """The listener of a button that starts a job."""

    def steps(values: Values, who: str) -> Iterator[Updates]:
        yield from work(loaded_lab(labs, values[loaded]), values, who)

    def listener(values: Values, request: gr.Request) -> Iterator[Updates]:
        yield from controls.run(steps(values, visitor(request)))

    return listener


def _drafted(lane: Lane) -> bool:
    return not lane.drafter.plain and lane.trace is not None and not lane.error
