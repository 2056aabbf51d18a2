"""Connects the events of the compare page, apart from those that read the cards' controls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gradio as gr

from playground.ui.compare import forks
from playground.ui.compare.cards import CardList
from playground.ui.compare.layout import Layout
from playground.ui.compare.links import State, decode
from playground.ui.compare.presets import PRESETS, Preset
from playground.ui.compare.runs import Runs
from playground.ui.compare.tabs import connect_tabs
from playground.ui.shared import browser
from playground.ui.shared.comparison import Comparison
from playground.ui.shared.controls import PROMPT_KINDS, fitting
from playground.ui.shared.events import EVERY, GENERATION, QUICK, QUIET, Updates, visitor
from playground.ui.shared.gradio_internals import event_payload
from playground.ui.shared.messages import shows_errors, warn
from playground.ui.shared.pages import App, ComparisonEvents


def connect(layout: Layout, app: App, runs: Runs) -> None:
    """Connect the page, and the other pages in its tabs."""

    def busy(request: gr.Request) -> bool:
        return runs.is_running(visitor(request))

    def current(request: gr.Request) -> Comparison | None:
        return runs.comparison(visitor(request))

    app.model.connect(app.blocks, app.labs, layout.actions.start, busy)
    _connect_presets(layout, app)
    _connect_runs(layout, app, runs, busy)
    _connect_arrival(layout, app, runs)
    connect_tabs(layout.tabs, app, runs, layout.form, layout.actions, layout.cards, layout.live)
    events = ComparisonEvents(
        prompt=layout.form.prompt,
        prompt_kind=layout.form.kind,
        current=current,
        finished=layout.live.over,
        pinned=layout.live.pinned,
        open_tab=layout.tabs.open_tab,
    )
    for name, page in layout.tabs.pages.items():
        page.connect(layout.tabs.each[name], events)


def _connect_presets(layout: Layout, app: App) -> None:
    form, tabs = layout.form, layout.tabs

    def fill(cards: CardList, preset: Preset) -> Updates:
        tokens = min(preset.max_new_tokens, app.limits.max_new_tokens)
        shared = {**preset.shared, "seed": preset.seed, "max_new_tokens": tokens}
        return {
            form.prompt: preset.prompt,
            form.kind: PROMPT_KINDS[preset.chat],
            **form.show_shared(shared),
            layout.cards: cards.replaced(preset.cards[: app.limits.strategies]),
            layout.preset_text: preset.point,
            **tabs.select(preset.tab),
        }

    outputs = [*form.fields, layout.cards, layout.preset_text, *tabs.selection]
    for button, preset in zip(layout.presets, PRESETS, strict=True):
        filled = button.click(partial(fill, preset=preset), layout.cards, outputs, **QUICK)
        filled.then(None, js=browser.background(preset.colour), **QUIET)


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
    for event in (live.begun, app.browser.drawn):
        event(switch, None, layout.actions.switched, **EVERY)
    live.paced(control, None, None, queue=False, **{**QUIET, "trigger_mode": "multiple"})
    live.forked(fork, None, live, **GENERATION)
    live.edited(edit, None, live, **GENERATION)


def _connect_arrival(layout: Layout, app: App, runs: Runs) -> None:
    """Restore the page after a reload, or from a link."""
    tabs, linked = layout.tabs, layout.tabs.linked_forms

    @shows_errors
    def arrive(cards: CardList, event: gr.EventData, request: gr.Request) -> Updates:
        stored = event_payload(event)
        updates: Updates = {layout.live: gr.skip()}
        if stored.get("tab") in tabs.each:
            updates |= tabs.select(stored["tab"])
        if stored.get("feed"):
            value = runs.resume(visitor(request), str(stored["feed"]))
            updates[layout.live] = gr.skip() if value is None else value
        if stored.get("state"):
            updates |= _restored(layout, app, cards, decode(str(stored["state"])))
        return updates

    outputs: list[Any] = [*layout.form.fields, layout.cards, app.model.menu, layout.live]
    others = [block for form in linked.values() for block in form.restorable]
    outputs += [*tabs.selection, *others]
    app.browser.arrived(arrive, layout.cards, outputs, **QUICK)


def _restored(layout: Layout, app: App, cards: CardList, state: State) -> Updates:
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
        updates[layout.cards] = cards.replaced(state.cards[: app.limits.strategies])
    for name, other in layout.tabs.linked_forms.items():
        updates |= other.restore(state.pages.get(name, {}))
    return updates
