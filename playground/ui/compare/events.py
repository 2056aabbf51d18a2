"""Connects the events of the compare page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gradio as gr
from gradio.blocks import Block

from playground import Playground
from playground.ui.compare import forks
from playground.ui.compare.cards import (
    ADD_STRATEGY,
    cards_of,
    catalog,
    choice,
    from_json,
    heading,
    to_json,
)
from playground.ui.compare.layout import Layout
from playground.ui.compare.links import State, decode, encode
from playground.ui.compare.presets import PRESETS, Preset
from playground.ui.compare.runs import Runs
from playground.ui.compare.tabs import connect_tabs
from playground.ui.shared import browser
from playground.ui.shared.comparison import Comparison, RunRequest
from playground.ui.shared.controls import MESSAGE, PROMPT_KINDS, fitting
from playground.ui.shared.events import EVERY, GENERATION, QUICK, QUIET, Updates, Values, visitor
from playground.ui.shared.gradio_internals import event_payload
from playground.ui.shared.messages import shows_errors, warn
from playground.ui.shared.pages import App, ComparisonEvents, Pages


def connect(layout: Layout, app: App, runs: Runs, pages: Pages) -> None:
    """Connect the page, and let the other pages connect theirs."""

    def busy(request: gr.Request) -> bool:
        return runs.is_running(visitor(request))

    def current(request: gr.Request) -> Comparison | None:
        return runs.comparison(visitor(request))

    app.model.connect(app.blocks, app.labs, layout.actions.start, busy)
    _connect_presets(layout, app)
    _connect_form(layout, app, runs, pages)
    _connect_runs(layout, app, runs, busy)
    _connect_arrival(layout, app, runs, pages)
    connect_tabs(
        layout.tabs, app, runs, pages, layout.form, layout.actions, layout.cards, layout.live
    )
    events = ComparisonEvents(
        prompt=layout.form.prompt,
        prompt_kind=layout.form.kind,
        current=current,
        finished=layout.live.over,
        pinned=layout.live.pinned,
        open_tab=layout.tabs.open_tab,
    )
    for name, page in pages.built.items():
        page.connect(pages.each[name], events)


def _connect_presets(layout: Layout, app: App) -> None:
    form, tabs = layout.form, layout.tabs

    def fill(preset: Preset) -> Updates:
        tokens = min(preset.max_new_tokens, app.limits.max_new_tokens)
        shared = {**preset.shared, "seed": preset.seed, "max_new_tokens": tokens}
        return {
            form.prompt: preset.prompt,
            form.kind: PROMPT_KINDS[preset.chat],
            **form.show_shared(shared),
            layout.cards: to_json(cards_of(preset.cards, app.limits)),
            layout.preset_text: preset.point,
            **tabs.select(preset.tab),
        }

    outputs = [*form.fields, layout.cards, layout.preset_text, *tabs.selection]
    for button, preset in zip(layout.presets, PRESETS, strict=True):
        filled = button.click(partial(fill, preset), None, outputs, **QUICK)
        filled.then(None, js=browser.background(preset.colour), **QUIET)


def _connect_form(layout: Layout, app: App, runs: Runs, pages: Pages) -> None:
    """Connect what reads the whole form: runs, links, the browser's copy."""
    form, export, linked = layout.form, layout.tabs.export, pages.linked_forms
    loaded = app.model.loaded
    inputs: set[Block] = {layout.cards, loaded, *form.fields}
    all_inputs = inputs.union(*(other.inputs for other in linked.values()))

    def lab(values: Values) -> Playground:
        return app.labs.lab(values[loaded])

    def requests(values: Values) -> list[RunRequest]:
        prompt, shared = form.prompt_of(values), form.shared_of(values)
        found = []
        for card in from_json(values[layout.cards], app.limits):
            chosen = choice(card, lab(values))
            found.append(RunRequest(prompt, chosen, shared, heading(*chosen), card.to_dict()))
        return found

    def encoded(values: Values) -> str:
        state = State.of(
            values[loaded],
            values[form.prompt],
            values[form.kind] == MESSAGE,
            {name: values[field] for name, field in form.shared.items()},
            from_json(values[layout.cards], app.limits),
            {name: other.changes(lab(values), values) for name, other in linked.items()},
        )
        return encode(state)

    def run(values: Values, request: gr.Request) -> Iterator[str]:
        yield from runs.compare(lab(values), visitor(request), lambda: requests(values))

    def step(values: Values, request: gr.Request) -> Iterator[str]:
        yield from runs.compare(
            lab(values), visitor(request), lambda: requests(values), stepping=True
        )

    @shows_errors
    def store(values: Values) -> Any:
        return browser.store(state=encoded(values)) if values[loaded] else gr.skip()

    def list_strategies(name: str) -> Any:
        return catalog(app.labs.lab(name), app.limits) if name else gr.skip()

    # Streams only the live view: each further output costs the browser time at every value.
    gr.on([layout.actions.run.click, form.prompt.submit], run, inputs, layout.live, **GENERATION)
    layout.actions.step.click(step, inputs, layout.live, **GENERATION)
    layout.actions.add.click(None, js=ADD_STRATEGY, **QUIET)
    loaded.change(list_strategies, loaded, layout.catalog, **QUICK)
    app.browser.changed(store, all_inputs, app.browser, **QUICK)
    link = export.make_link.click(shows_errors(encoded), all_inputs, export.link, **QUICK)
    link.then(None, export.link, export.link, js=browser.LINK, **QUIET)


def _connect_runs(layout: Layout, app: App, runs: Runs, busy: Callable[[gr.Request], bool]) -> None:
    """Connect what stops, pauses and forks runs."""

    def stop(request: gr.Request) -> None:
        runs.stop(visitor(request))

    def leave(request: gr.Request) -> None:
        runs.leave(visitor(request))

    def control(event: gr.EventData, request: gr.Request) -> None:
        runs.control(visitor(request), str(event_payload(event).get("do")))

    def fork(event: gr.EventData, request: gr.Request) -> Iterator[str]:
        find_fork = partial(forks.at_token, event_payload(event))
        yield from runs.fork(app.labs.lab, visitor(request), find_fork)

    def edit(event: gr.EventData, request: gr.Request) -> Iterator[str]:
        find_fork = partial(forks.at_edit, event_payload(event))
        yield from runs.fork(app.labs.lab, visitor(request), find_fork)

    def switch(request: gr.Request) -> Updates:
        return layout.actions.switch(running=busy(request))

    live = layout.live
    layout.actions.stop.click(stop, queue=False, **QUIET)
    app.blocks.unload(leave)
    live.begun(switch, None, layout.actions.switched, **EVERY)
    live.paced(control, None, None, queue=False, **{**QUIET, "trigger_mode": "multiple"})
    live.forked(fork, None, live, **GENERATION)
    live.edited(edit, None, live, **GENERATION)


def _connect_arrival(layout: Layout, app: App, runs: Runs, pages: Pages) -> None:
    """Restore the page after a reload, or from a link."""
    tabs = layout.tabs

    @shows_errors
    def arrive(event: gr.EventData, request: gr.Request) -> Updates:
        stored = event_payload(event)
        updates: Updates = {layout.live: gr.skip()}
        if stored.get("tab") in tabs.known:
            updates |= tabs.select(stored["tab"])
        if stored.get("feed"):
            value = runs.resume(visitor(request), str(stored["feed"]))
            updates[layout.live] = gr.skip() if value is None else value
        if stored.get("state"):
            updates |= _restored(layout, app, pages, decode(str(stored["state"])))
        return updates

    outputs: list[Any] = [*layout.form.fields, layout.cards, app.model.menu, layout.live]
    others = [block for form in pages.linked_forms.values() for block in form.restorable]
    outputs += [*tabs.selection, *others]
    app.browser.arrived(arrive, None, outputs, **QUICK)


def _restored(layout: Layout, app: App, pages: Pages, state: State) -> Updates:
    form = layout.form
    updates: Updates = {form.prompt: state.prompt, form.kind: PROMPT_KINDS[state.chat]}
    if state.model in app.labs.names or app.labs.allow_any:
        updates[app.model.menu] = state.model
    else:
        warn(f"The link uses the model {state.model}, which this server does not offer.")
    defaults = form.show_shared({})
    for name, field in form.shared.items():
        updates[field] = fitting(field, state.shared.get(name), defaults[field])
    if state.cards:
        updates[layout.cards] = to_json(state.cards[: app.limits.strategies])
    for name, other in pages.linked_forms.items():
        updates |= other.restore(state.pages.get(name, {}))
    return updates
