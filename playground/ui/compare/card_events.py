"""What is drawn with the cards, and the events that read their controls.

Knows that Gradio draws cards anew and that their events come and go with them: such an event must
have no listener elsewhere, as Gradio would let one take the other's place. Refuses to know how a
comparison is run. Values reach functions keyed by their component, never by position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gradio as gr
from gradio.blocks import Block
from gradio.components import Component
from gradio.context import LocalContext

from engine.settings import SHARED, Limits
from playground import Playground
from playground.ui.compare import cards, configurations
from playground.ui.compare.card_state import Deck
from playground.ui.compare.components import (
    DEALING,
    KINDS,
    QUICK,
    QUIET,
    RUNNING,
    Form,
    Parts,
    Values,
    buttons,
    visitor,
)
from playground.ui.compare.link_state import State, encode
from playground.ui.compare.results import Asked
from playground.ui.compare.runs import Runs
from playground.ui.shared import browser
from playground.ui.shared.controls import bind, shown
from playground.ui.shared.model_loading import Labs


def draw_cards(parts: Parts, labs: Labs, limits: Limits, runs: Runs) -> None:
    """Draw the cards whenever the deck or the model changes."""

    # The deck when another model was chosen, and the same with what its controls showed then.
    held = gr.State(None)
    wanted = gr.Number(0, precision=0, elem_classes="signal")  # how often the cards were to change

    def draw(deck: Deck, loaded: str, before: tuple[Deck, Deck] | None, count: int) -> None:
        _seek_no_loads()
        if not loaded:
            return
        if before and before[0] == deck:
            deck = before[1]
        lab = labs.lab(loaded)
        drawn = cards.draw(deck, lab, limits)
        taken = partial(_taken, parts, drawn, lab)
        inputs: set[Block] = {parts.deck, *_controls(drawn)}
        _connect_cards(parts, drawn, inputs, taken, limits)
        _connect_form(parts, inputs, taken, lab, runs)
        hold = partial(_held, parts, taken)
        parts.model.input(hold, inputs, held, **QUICK)
        # Run is only usable from here on: a press before would reach nothing.
        gr.HTML(js_on_load=browser.drawn(count), elem_classes="signal")

    changed = [parts.deck.change, parts.loaded.change]
    begins = [parts.actions.run, parts.actions.step]
    told = {**QUIET, "trigger_mode": "multiple"}
    gr.on(changed, None, None, [wanted, *begins], js=browser.DRAWING, **told)
    render = gr.render(
        [parts.deck, parts.loaded, held, wanted],
        [wanted.change],
        show_progress="hidden",
        # One at a time: what a rendering remembers of the last one is shared by all visitors.
        concurrency_limit=1,
    )
    render(draw)


def _seek_no_loads() -> None:
    """Have Gradio not look for components here that load their values: none does, and it fails
    where another event of the visitor adds to what it looks through."""
    config: Any = LocalContext.blocks_config.get()
    config.attach_load_events = lambda rendered_in: None


def buttons_now(runs: Runs) -> Callable[[gr.Request], tuple[gr.Button, ...]]:
    """A listener that sets the buttons; a closure, as Gradio hands no request to a partial."""

    def look(request: gr.Request) -> tuple[gr.Button, ...]:
        return buttons(running=runs.going(visitor(request)))

    return look


def _controls(drawn: list[cards.DrawnCard]) -> list[Component]:
    return [control for card in drawn for control in card.controls.values()]


def _taken(parts: Parts, drawn: list[cards.DrawnCard], lab: Playground, values: Values) -> Deck:
    """The deck with what the controls show: every change begins here, so that nothing is lost."""
    return cards.filled(values[parts.deck], drawn, values, lab)


def _held(parts: Parts, taken: Callable[[Values], Deck], values: Values) -> tuple[Deck, Deck]:
    return values[parts.deck], taken(values)


def _connect_cards(
    parts: Parts,
    drawn: list[cards.DrawnCard],
    inputs: set[Block],
    taken: Callable[[Values], Deck],
    limits: Limits,
) -> None:
    """Connect what changes the deck."""

    def add(values: Values) -> Deck:
        deck = taken(values)
        if len(deck.cards) >= limits.strategies:
            gr.Info(f"At most {limits.strategies} strategies run side by side.")
            return deck
        return deck.add(deck.cards[-1].strategy)

    def change(values: Values, card: cards.DrawnCard, how: Callable[[Deck, int], Deck]) -> Deck:
        return how(taken(values), card.key)

    # Gradio tells of an input whenever a list is left: cards that are drawn anew for nothing would
    # take the focus, and the press that comes next, with them.
    def choose(values: Values, card: cards.DrawnCard) -> Any:
        now = {each.key: each.strategy for each in values[parts.deck].cards}
        chosen = values[card.picker]
        return gr.skip() if now.get(card.key) == chosen else taken(values).choose(card.key, chosen)

    def also(values: Values, card: cards.DrawnCard) -> Any:
        name = values[card.also]
        if not name:
            return gr.skip()
        setting = SHARED.get(name)
        start = None if setting is None else shown(setting, values[parts.form.shared[name]])
        return taken(values).give(card.key, name, "" if start is None else start)

    parts.actions.add.click(add, inputs, parts.deck, **DEALING)
    for card in drawn:
        for button, how in (
            (card.sooner, lambda deck, key: deck.move(key, -1)),
            (card.later, lambda deck, key: deck.move(key, 1)),
            (card.duplicate, Deck.duplicate),
            (card.remove, Deck.remove),
        ):
            button.click(partial(change, card=card, how=how), inputs, parts.deck, **DEALING)
        card.picker.input(partial(choose, card=card), inputs | {card.picker}, parts.deck, **DEALING)
        for switch, fold in card.folds.items():
            turn: Any = card.controls[switch]  # Gradio adds its events at run time
            turn.change(lambda on: gr.update(visible=bool(on)), turn, fold, **QUICK)
        further = inputs | {card.also, *parts.form.shared.values()}
        card.also.input(partial(also, card=card), further, parts.deck, **DEALING)


def _connect_form(
    parts: Parts,
    inputs: set[Block],
    taken: Callable[[Values], Deck],
    lab: Playground,
    runs: Runs,
) -> None:
    """Connect what reads the whole form: a run, a link, what the browser keeps, configurations."""
    form, take, raced = parts.form, parts.tabs.take, parts.tabs.speculative.form
    inputs = inputs | {*form.fields}
    everything = inputs | raced.inputs

    def asked(values: Values) -> list[Asked]:
        prompt, settings = values[form.prompt], shared(form, values)
        said = [{"role": "user", "content": prompt}] if values[form.kind] == KINDS[1] else prompt
        return [
            Asked(said, choice, settings, cards.heading(*choice, lab))
            for choice in cards.asked(taken(values), lab)
        ]

    def state(values: Values) -> str:
        fields = {name: values[field] for name, field in form.shared.items()}
        chat = values[form.kind] == KINDS[1]
        told = (values[form.prompt], chat, fields, taken(values), raced.changed(lab, values))
        return encode(State.of(lab.model.name, *told))

    def run(values: Values, request: gr.Request) -> Iterator[str]:
        yield from runs.compare(lab, visitor(request), lambda: asked(values))

    def step(values: Values, request: gr.Request) -> Iterator[str]:
        yield from runs.compare(lab, visitor(request), lambda: asked(values), stepping=True)

    def remember(values: Values) -> str:
        return browser.keeps(state=state(values))

    # The stream feeds the live view alone: every further output would cost the browser as much
    # again at every screen.
    starts = [parts.actions.run.click, form.prompt.submit]
    gr.on(starts, run, inputs, parts.live, **RUNNING)
    parts.actions.step.click(step, inputs, parts.live, **RUNNING)
    parts.browser.changed(remember, everything, parts.browser, **QUICK)
    link = take.make_link.click(state, everything, take.link, **QUICK)
    link.then(None, take.link, take.link, js=browser.LINK, **QUIET)
    configurations.connect_cards(
        take.configurations,
        inputs,
        lambda values: (taken(values), shared(form, values)),
        lab,
        parts.live.ended,
        **QUICK,
    )


def shared(form: Form, values: Values) -> dict[str, Any]:
    """The settings for every strategy that were given."""
    return bind(SHARED, {name: values[field] for name, field in form.shared.items()}, {})
