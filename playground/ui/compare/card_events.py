"""Renders the cards, and connects the events that read their controls.

`gr.render` replaces the cards and their listeners at every change. An event that has a listener
here must have none elsewhere: Gradio would replace that one too. Listeners get their values by
component, never by position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gradio as gr
from gradio.blocks import Block

from engine.settings import SHARED, Limits
from playground import Playground
from playground.ui.compare.cards import (
    CardComponents,
    CardList,
    build_cards,
    choices,
    heading,
    read_cards,
)
from playground.ui.compare.layout import Layout
from playground.ui.compare.links import State, encode
from playground.ui.compare.runs import Runs
from playground.ui.shared import browser, gradio_internals
from playground.ui.shared.comparison import RunRequest
from playground.ui.shared.controls import MESSAGE, shown
from playground.ui.shared.events import GENERATION, QUICK, QUIET, Values, visitor
from playground.ui.shared.pages import App

# One at a time: a dropdown may report a choice twice, and the second must see the first.
_CARD_CHANGE: dict[str, Any] = {**QUIET, "concurrency_limit": 1, "concurrency_id": "cards"}

ReadCards = Callable[[Values], CardList]


def render_cards(layout: Layout, app: App, runs: Runs) -> None:
    """Render the cards whenever they or the model change."""

    # What the controls showed when another model was chosen: the state then, and as it was read.
    before_model_change = gr.State(None)
    requested = gr.Number(0, precision=0, elem_classes="signal")  # counts requested renderings

    def render(
        state: CardList, loaded: str, before: tuple[CardList, CardList] | None, count: int
    ) -> None:
        gradio_internals.skip_load_events()
        if not loaded:
            return
        if before and before[0] == state:
            state = before[1]
        lab = app.labs.lab(loaded)
        components = build_cards(state, lab, app.limits)

        def read(values: Values) -> CardList:
            return read_cards(values[layout.cards], components, values, lab)

        def read_before_model_change(values: Values) -> tuple[CardList, CardList]:
            return values[layout.cards], read(values)

        controls = [control for card in components for control in card.controls.values()]
        inputs: set[Block] = {layout.cards, *controls}
        _connect_cards(layout, components, inputs, read, app.limits)
        _connect_form(layout, app, inputs, read, lab, runs)
        app.model.menu.input(read_before_model_change, inputs, before_model_change, **QUICK)
        # Enables the start buttons: a click before would have no listener.
        gr.HTML(js_on_load=browser.cards_rendered(count), elem_classes="signal")

    gr.on(
        [layout.cards.change, app.model.loaded.change],
        None,
        None,
        [requested, *layout.actions.start],
        js=browser.CARDS_REQUESTED,
        **{**QUIET, "trigger_mode": "multiple"},
    )
    gr.render(
        [layout.cards, app.model.loaded, before_model_change, requested],
        [requested.change],
        show_progress="hidden",
        # One at a time: what Gradio keeps of the last rendering is shared by all visitors.
        concurrency_limit=1,
    )(render)


def _connect_cards(
    layout: Layout,
    components: list[CardComponents],
    inputs: set[Block],
    read: ReadCards,
    limits: Limits,
) -> None:
    """Connect what changes the cards. Every change reads the controls first."""

    def add(values: Values) -> CardList:
        state = read(values)
        if len(state.cards) >= limits.strategies:
            gr.Info(f"A comparison has at most {limits.strategies} strategies.")
            return state
        return state.add(state.cards[-1].strategy)

    def change(values: Values, card: CardComponents, how: Callable[..., CardList]) -> CardList:
        return how(read(values), card.key)

    # Gradio also reports an input when a dropdown loses the focus. Rendering the cards then would
    # discard the focus, and the click that follows.
    def set_strategy(values: Values, card: CardComponents) -> Any:
        now = {each.key: each.strategy for each in values[layout.cards].cards}
        chosen = values[card.strategy]
        if now.get(card.key) == chosen:
            return gr.skip()
        return read(values).set_strategy(card.key, chosen)

    def add_setting(values: Values, card: CardComponents) -> Any:
        name = values[card.add_setting]
        if not name:
            return gr.skip()
        start = shown(SHARED[name], values[layout.form.shared[name]]) if name in SHARED else None
        return read(values).set_values({card.key: {name: "" if start is None else start}})

    layout.actions.add.click(add, inputs, layout.cards, **_CARD_CHANGE)
    for card in components:
        for button, how in (
            (card.left, lambda state, key: state.move(key, -1)),
            (card.right, lambda state, key: state.move(key, 1)),
            (card.duplicate, CardList.duplicate),
            (card.remove, CardList.remove),
        ):
            listener = partial(change, card=card, how=how)
            button.click(listener, inputs, layout.cards, **_CARD_CHANGE)
        card.strategy.input(
            partial(set_strategy, card=card),
            inputs | {card.strategy},
            layout.cards,
            **_CARD_CHANGE,
        )
        for switch, accordion in card.conditional.items():
            control: Any = card.controls[switch]  # Gradio adds its events at run time
            control.change(lambda on: gr.update(visible=bool(on)), control, accordion, **QUICK)
        card.add_setting.input(
            partial(add_setting, card=card),
            inputs | {card.add_setting, *layout.form.shared.values()},
            layout.cards,
            **_CARD_CHANGE,
        )


def _connect_form(
    layout: Layout, app: App, inputs: set[Block], read: ReadCards, lab: Playground, runs: Runs
) -> None:
    """Connect what reads the whole form: runs, links, the browser's copy, configurations."""
    form, export, linked = layout.form, layout.tabs.export, layout.tabs.linked_forms
    inputs = inputs | {*form.fields}
    all_inputs = inputs.union(*(other.inputs for other in linked.values()))

    def requests(values: Values) -> list[RunRequest]:
        prompt, shared = form.prompt_of(values), form.shared_of(values)
        return [
            RunRequest(prompt, choice, shared, heading(*choice, lab))
            for choice in choices(read(values), lab)
        ]

    def encoded(values: Values) -> str:
        state = State.of(
            lab.model.name,
            values[form.prompt],
            values[form.kind] == MESSAGE,
            {name: values[field] for name, field in form.shared.items()},
            read(values),
            {name: other.changes(lab, values) for name, other in linked.items()},
        )
        return encode(state)

    def run(values: Values, request: gr.Request) -> Iterator[str]:
        yield from runs.compare(lab, visitor(request), lambda: requests(values))

    def step(values: Values, request: gr.Request) -> Iterator[str]:
        yield from runs.compare(lab, visitor(request), lambda: requests(values), stepping=True)

    def store(values: Values) -> str:
        return browser.store(state=encoded(values))

    # Streams only the live view: each further output costs the browser time at every value.
    gr.on([layout.actions.run.click, form.prompt.submit], run, inputs, layout.live, **GENERATION)
    layout.actions.step.click(step, inputs, layout.live, **GENERATION)
    app.browser.changed(store, all_inputs, app.browser, **QUICK)
    link = export.make_link.click(encoded, all_inputs, export.link, **QUICK)
    link.then(None, export.link, export.link, js=browser.LINK, **QUIET)
    export.configurations.connect_cards(
        inputs,
        lambda values: (read(values), form.shared_of(values)),
        lab,
        layout.live.ended,
    )
