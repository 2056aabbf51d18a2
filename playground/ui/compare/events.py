"""Connects the events of the compare page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gradio as gr
from gradio.blocks import Block

from playground import Playground
from playground.ui import assets
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
from playground.ui.compare.presets import listing, preset_at
from playground.ui.compare.runs import Runs
from playground.ui.compare.tabs import connect_tabs
from playground.ui.compare.views import STOP
from playground.ui.shared import browser
from playground.ui.shared.comparison import Comparison, RunRequest
from playground.ui.shared.controls import MESSAGE, PROMPT_KINDS, fitting
from playground.ui.shared.events import (
    EVERY,
    QUICK,
    QUIET,
    Updates,
    Values,
    event_data,
    visitor,
)
from playground.ui.shared.jobs import loaded_lab
from playground.ui.shared.messages import shows_errors, warn
from playground.ui.shared.pages import App, ComparisonEvents, Pages, SentColumn
from playground.ui.shared.share import link_state

_HAND_OVER = "compare/web/hand_over.js"


def connect(layout: Layout, app: App, runs: Runs, pages: Pages) -> None:
    """Connect the page, and let the other pages connect theirs."""

    def busy(request: gr.Request) -> bool:
        return runs.is_running(visitor(request))

    def current(request: gr.Request) -> Comparison | None:
        return runs.comparison(visitor(request))

    app.model.connect(app.blocks, app.labs, layout.actions.start, busy)
    _connect_form(layout, app, runs, pages)
    _connect_runs(layout, app, runs, busy)
    _connect_arrival(layout, app, runs, pages)
    connect_tabs(
        layout.tabs, app, runs, pages, layout.form, layout.actions, layout.cards, layout.live
    )

    def sent_column(page: str, event: gr.EventData, request: gr.Request) -> SentColumn | None:
        comparison, sent = current(request), event_data(event, "page", "column")
        if comparison is None or sent["page"] != page:
            return None
        column = comparison.column(sent["column"])
        return SentColumn(column, comparison) if column.trace else None

    events = ComparisonEvents(
        current=current,
        finished=layout.live.over,
        pinned=layout.live.pinned,
        sent=layout.live.sent,
        sent_column=sent_column,
        back_from=partial(assets.listener, _HAND_OVER, "backFrom"),
    )
    for name, page in pages.built.items():
        page.connect(pages.each[name], events)


def _connect_form(layout: Layout, app: App, runs: Runs, pages: Pages) -> None:
    """Connect what reads or fills the whole form: examples, runs, links, the browser's copy."""
    form, linked = layout.form, pages.linked_forms
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

    def start(values: Values, request: gr.Request, *, stepping: bool) -> Any:
        begun = runs.compare(
            lab(values), visitor(request), lambda: requests(values), stepping=stepping
        )
        return begun or gr.skip()

    def run(values: Values, request: gr.Request) -> Any:
        return start(values, request, stepping=False)

    def step(values: Values, request: gr.Request) -> Any:
        return start(values, request, stepping=True)

    @shows_errors
    def store(values: Values) -> Any:
        return browser.store(state=encoded(values)) if values[loaded] else gr.skip()

    @shows_errors
    def share(values: Values) -> Any:
        loaded_lab(app.labs, values[loaded])  # an error while the model loads
        return link_state(encoded(values))

    def list_strategies(name: str) -> Any:
        if not name:
            return gr.skip(), gr.skip()
        model = app.labs.lab(name)
        return catalog(model, app.limits), listing(model, app.limits)

    @shows_errors
    def fill(event: gr.EventData, request: gr.Request) -> Updates:
        runs.stop(visitor(request))
        preset = preset_at(event_data(event, "index")["index"])
        tokens = min(preset.max_new_tokens, app.limits.max_new_tokens)
        shared = {**preset.shared, "seed": preset.seed, "max_new_tokens": tokens}
        return {
            form.prompt: preset.prompt,
            form.kind: PROMPT_KINDS[preset.chat],
            **form.show_shared(shared),
            layout.cards: to_json(cards_of(preset.cards, app.limits)),
        }

    # A click right after a run's last token counts even if Gradio has not processed that run's
    # end yet; `Runs` rejects a second run of the same visitor.
    gr.on([layout.actions.run.click, form.prompt.submit], run, inputs, layout.live, **EVERY)
    layout.actions.step.click(step, inputs, layout.live, **EVERY)
    layout.actions.add.click(None, js=ADD_STRATEGY, **QUIET)
    filled = layout.presets.chosen(fill, None, [*form.fields, layout.cards], **EVERY)
    filled.success(run, inputs, layout.live, **EVERY)
    loaded.change(list_strategies, loaded, [layout.catalog, layout.presets], **QUICK)
    app.browser.changed(store, all_inputs, app.browser, **QUICK)
    app.share.requested(share, all_inputs, app.share, **QUICK)


def _connect_runs(layout: Layout, app: App, runs: Runs, busy: Callable[[gr.Request], bool]) -> None:
    """Connect what stops and forks runs."""

    def fork(event: gr.EventData, request: gr.Request) -> Any:
        find_fork = partial(forks.at_token, event_data(event, *forks.AT_TOKEN))
        return runs.fork(app.labs.lab, visitor(request), find_fork) or gr.skip()

    def edit(event: gr.EventData, request: gr.Request) -> Any:
        find_fork = partial(forks.at_edit, event_data(event, *forks.AT_EDIT))
        return runs.fork(app.labs.lab, visitor(request), find_fork) or gr.skip()

    def switch(request: gr.Request) -> Updates:
        return layout.actions.switch(running=busy(request))

    live = layout.live
    layout.actions.stop.click(None, js=STOP, **QUIET)
    live.started(switch, None, layout.actions.switched, **EVERY)
    live.forked(fork, None, live, **EVERY)
    live.edited(edit, None, live, **EVERY)


def _connect_arrival(layout: Layout, app: App, runs: Runs, pages: Pages) -> None:
    """Restore the page after a reload, or from a link."""

    @shows_errors
    def arrive(event: gr.EventData, request: gr.Request) -> Updates:
        stored = event_data(event, "state", "feed")
        updates: Updates = {layout.live: gr.skip()}
        if stored.get("feed"):
            value = runs.resume(visitor(request), str(stored["feed"]))
            updates[layout.live] = gr.skip() if value is None else value
        if stored.get("state"):
            updates |= _restored(layout, app, pages, decode(str(stored["state"])))
        return updates

    outputs: list[Any] = [*layout.form.fields, layout.cards, app.model.menu, layout.live]
    others = [block for form in pages.linked_forms.values() for block in form.restorable]
    outputs += others
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
