"""What happens when something on the page is pressed, changed or loaded.

Knows the parts by name and which event feeds which. Refuses to know where they stand and how a
comparison is run. Values reach functions keyed by their component, never by position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr
from gradio.blocks import Block
from gradio.components import Component

from engine.errors import PlaygroundError
from engine.settings import SHARED, Limits
from playground import Playground
from playground.ui import cards, configurations, figures
from playground.ui.configurations import Section
from playground.ui.controls import bind
from playground.ui.deck import Deck
from playground.ui.examples import EXAMPLES, Example
from playground.ui.handlers import Runs, Wish
from playground.ui.loading import Loader

KINDS = ("text to continue", "message to answer")
IN_SIGHT = ("max_new_tokens", "seed")  # the shared settings that are not folded away

Values = Mapping[Block, Any]

_QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
# Through the queue, though they are quick: Gradio tells of a changed state only there.
_QUICK: dict[str, Any] = {**_QUIET, "concurrency_limit": None}


@dataclass(frozen=True)
class Form:
    """What a visitor fills in, but for the cards."""

    prompt: gr.Textbox
    kind: gr.Radio
    shared: Mapping[str, Component]


@dataclass(frozen=True)
class Parts:
    """Everything that events connect."""

    form: Form
    deck: gr.State
    model: gr.Markdown
    loaded: gr.State
    examples: list[gr.Button]
    point: gr.Markdown
    run: gr.Button
    stop: gr.Button
    add: gr.Button
    configurations: Section
    live: gr.HTML
    results: gr.State
    plots: list[gr.Plot]


def connect(page: gr.Blocks, parts: Parts, loader: Loader, limits: Limits, runs: Runs) -> None:
    """Connect everything that needs no card."""

    def stop(request: gr.Request) -> None:
        runs.stop(str(request.session_hash))

    def leave(request: gr.Request) -> None:
        runs.forget(str(request.session_hash))

    def finish(request: gr.Request) -> tuple[Any, ...]:
        visitor = str(request.session_hash)
        traces = runs.traces(visitor)
        results = gr.skip() if traces is None else figures.Results(traces)
        return *_buttons(visitor, runs), results

    parts.stop.click(stop, queue=False, **_QUIET)
    page.unload(leave)
    # Neither is chained to the run: drawing the cards anew drops the events of the old ones.
    parts.live.begun(_buttons_now(runs), None, [parts.run, parts.stop], **_QUICK)
    parts.live.over(finish, None, [parts.run, parts.stop, parts.results], **_QUICK)
    parts.results.change(figures.drawn, parts.results, parts.plots, **_QUICK)
    _connect_model(page, parts, loader)
    _connect_examples(parts, limits)
    _connect_files(parts, loader)


def _connect_model(page: gr.Blocks, parts: Parts, loader: Loader) -> None:
    """Ask for the model until it is there; an answer that is lost on its way is asked for again."""

    def ask() -> tuple[Any, ...]:
        loader.start()
        if not loader.done:
            words = f"Loading the model {loader.name} … {loader.seconds:.0f} s"
            return words, False, gr.skip()
        try:
            lab = loader.lab()
            return f"Model: **{lab.model.name}**", True, gr.Timer(active=False)
        except Exception as error:
            why = error if isinstance(error, PlaygroundError) else "the server's log says why"
            return f"The model could not be loaded: {why}", False, gr.Timer(active=False)

    again = gr.Timer(0.5)
    gr.on([page.load, again.tick], ask, None, [parts.model, parts.loaded, again], **_QUICK)


def _connect_examples(parts: Parts, limits: Limits) -> None:
    form = parts.form
    fields = [form.prompt, form.kind, *(form.shared[name] for name in IN_SIGHT)]

    def fill(deck: Deck, example: Example) -> tuple[Any, ...]:
        length = min(example.max_new_tokens, limits.max_new_tokens)
        dealt = deck.deal(example.cards[: limits.strategies])
        return example.prompt, KINDS[example.chat], length, example.seed, dealt, example.point

    for button, example in zip(parts.examples, EXAMPLES, strict=True):
        button.click(
            partial(fill, example=example),
            parts.deck,
            [*fields, parts.deck, parts.point],
            **_QUICK,
        )


def _connect_files(parts: Parts, loader: Loader) -> None:
    """What needs no card: a deck that has just changed holds all that its controls show."""
    form = parts.form

    def take(values: Values) -> tuple[Deck, dict[str, Any]]:
        return values[parts.deck], _shared(form, values)

    inputs: set[Block] = {parts.deck, *form.shared.values()}
    changed = (parts.deck.change, parts.loaded.change)
    configurations.connect_deck(parts.configurations, inputs, take, loader, changed, **_QUICK)
    configurations.connect_load(parts.configurations, parts.deck, form.shared, loader, **_QUICK)


def draw_cards(parts: Parts, loader: Loader, limits: Limits, runs: Runs) -> None:
    """Draw the cards whenever the deck changes; events that read their controls come with them.

    Such events must have no listener elsewhere: Gradio would let this one take its place.
    """

    def draw(deck: Deck, loaded: bool) -> None:
        if not loader.loaded:
            return
        lab = loader.lab()
        drawn = cards.draw(deck, lab, limits)
        _connect_cards(parts, drawn, lab, limits)
        _connect_run(parts, drawn, lab, runs)
        _connect_configurations(parts, drawn, lab)
        # Run is only usable from here on: a press before would reach nothing.
        ready = gr.HTML(js_on_load="trigger('drawn')", elem_classes="signal")
        ready.drawn(_buttons_now(runs), None, [parts.run, parts.stop], **_QUICK)

    render = gr.render(
        [parts.deck, parts.loaded],
        [parts.deck.change, parts.loaded.change],
        show_progress="hidden",
        # One at a time: what a rendering remembers of the last one is shared by all visitors.
        concurrency_limit=1,
    )
    render(draw)


def _connect_cards(
    parts: Parts, drawn: list[cards.DrawnCard], lab: Playground, limits: Limits
) -> None:
    """Every change of the deck first takes down what the controls show, so that nothing is lost."""
    inputs: set[Block] = {parts.deck, *_controls(drawn)}

    def taken(values: Values) -> Deck:
        return cards.filled(values[parts.deck], drawn, values, lab)

    def add(values: Values) -> Deck:
        deck = taken(values)
        if len(deck.cards) >= limits.strategies:
            gr.Info(f"At most {limits.strategies} strategies run side by side.")
            return deck
        return deck.add(deck.cards[-1].strategy)

    def remove(values: Values, card: cards.DrawnCard) -> Deck:
        return taken(values).remove(card.key)

    def choose(values: Values, card: cards.DrawnCard) -> Deck:
        return taken(values).choose(card.key, values[card.picker])

    parts.add.click(add, inputs, parts.deck, **_QUICK)
    for card in drawn:
        card.remove.click(partial(remove, card=card), inputs, parts.deck, **_QUICK)
        card.picker.input(partial(choose, card=card), inputs | {card.picker}, parts.deck, **_QUICK)


def _controls(drawn: list[cards.DrawnCard]) -> list[Component]:
    return [control for card in drawn for control in card.controls.values()]


def _connect_configurations(parts: Parts, drawn: list[cards.DrawnCard], lab: Playground) -> None:
    form = parts.form

    def take(values: Values) -> tuple[Deck, dict[str, Any]]:
        return cards.filled(values[parts.deck], drawn, values, lab), _shared(form, values)

    inputs: set[Block] = {parts.deck, *form.shared.values(), *_controls(drawn)}
    configurations.connect_cards(
        parts.configurations, inputs, take, lab, parts.live.ended, **_QUICK
    )


def _shared(form: Form, values: Values) -> dict[str, Any]:
    return bind(SHARED, {name: values[field] for name, field in form.shared.items()}, {})


def _connect_run(parts: Parts, drawn: list[cards.DrawnCard], lab: Playground, runs: Runs) -> None:
    form = parts.form

    def wish(values: Values) -> Wish:
        prompt = values[form.prompt]
        asked = cards.asked(cards.filled(values[parts.deck], drawn, values, lab), lab)
        return Wish(
            [{"role": "user", "content": prompt}] if values[form.kind] == KINDS[1] else prompt,
            runs=asked,
            shared=_shared(form, values),
            headings=[cards.heading(strategy, given, lab) for strategy, given in asked],
        )

    def run(values: Values, request: gr.Request) -> Iterator[str]:
        yield from runs.compare(lab, str(request.session_hash), lambda: wish(values))

    fields: set[Block] = {form.prompt, form.kind, *form.shared.values()}
    inputs = fields | {parts.deck, *_controls(drawn)}
    # The stream feeds the live view alone: every further output would cost the browser as much
    # again at every screen.
    gr.on(
        [parts.run.click, form.prompt.submit],
        run,
        inputs,
        parts.live,
        concurrency_limit=8,
        concurrency_id="model",
        **_QUIET,
    )


def _buttons_now(runs: Runs) -> Callable[[gr.Request], tuple[gr.Button, gr.Button]]:
    """A listener that sets the buttons; a closure, as Gradio hands no request to a partial."""

    def look(request: gr.Request) -> tuple[gr.Button, gr.Button]:
        return _buttons(str(request.session_hash), runs)

    return look


def _buttons(visitor: str, runs: Runs) -> tuple[gr.Button, gr.Button]:
    """Run and Stop, one of them usable."""
    running = runs.going(visitor)
    return gr.Button(interactive=not running), gr.Button(interactive=running)
