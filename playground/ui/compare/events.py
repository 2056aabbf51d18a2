"""What happens when something on the page is pressed, changed or loaded, cards apart.

Knows the parts by name and which event feeds which. Refuses to know where they stand and how a
comparison is run.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import gradio as gr

from engine.errors import PlaygroundError
from engine.settings import SHARED, Limits
from playground.ui import watermark
from playground.ui.compare import forks, tab_events
from playground.ui.compare.card_events import buttons_now
from playground.ui.compare.card_state import Deck
from playground.ui.compare.components import KINDS, QUICK, QUIET, RUNNING, Parts, buttons, visitor
from playground.ui.compare.link_state import decode
from playground.ui.compare.presets import PRESETS, Preset
from playground.ui.compare.runs import Runs, wished
from playground.ui.shared import browser
from playground.ui.shared.controls import fitting, shown
from playground.ui.shared.messages import spoken, warn
from playground.ui.shared.model_loading import Labs
from playground.ui.speculative import events as connecting


def connect(page: gr.Blocks, parts: Parts, labs: Labs, limits: Limits, runs: Runs) -> None:
    """Connect everything that needs no card."""
    _connect_model(page, parts, labs, runs)
    _connect_presets(parts, limits)
    _connect_runs(page, parts, labs, runs)
    _connect_arrival(parts, labs, limits, runs)
    tab_events.connect(parts, labs, limits, runs)
    connecting.connect(parts, labs, limits)
    watermark.connect(parts, labs, limits, runs)


def _connect_model(page: gr.Blocks, parts: Parts, labs: Labs, runs: Runs) -> None:
    """Ask for the model until it is there; an answer that is lost on its way is asked for again."""

    def ask(name: str, loaded: str, request: gr.Request) -> tuple[Any, ...]:
        words, there, waiting = _looked_for(name, labs)
        # The cards stay, with all that was set, until those of the other model are drawn; a press
        # before that would run the model that is no longer chosen.
        drawn = there and there == loaded
        usable = buttons(running=not drawn or runs.going(visitor(request)))[:2]
        return words, there or loaded, gr.Timer(active=waiting), *usable

    again = gr.Timer(0.5)
    outputs = [parts.loading, parts.loaded, again, parts.actions.run, parts.actions.step]
    events = [page.load, again.tick, parts.model.change]
    gr.on(events, ask, [parts.model, parts.loaded], outputs, **QUICK)


def _looked_for(name: str, labs: Labs) -> tuple[str, str, bool]:
    """What to say of a model, its name if it is there, and whether to ask again."""
    try:
        loader = labs.loader(name)
        if not loader.done:
            return f"Loading {name} … {loader.seconds:.0f} s", "", True
        loader.lab()
        return "", name, False
    except Exception as error:
        why = error if isinstance(error, PlaygroundError) else "the server's log says why"
        return f"{name} could not be loaded: {why}", "", False


def _connect_presets(parts: Parts, limits: Limits) -> None:
    form = parts.form
    fields = [form.prompt, form.kind, *form.shared.values()]

    def fill(deck: Deck, preset: Preset) -> tuple[Any, ...]:
        length = min(preset.max_new_tokens, limits.max_new_tokens)
        wanted = {**preset.shared, "seed": preset.seed, "max_new_tokens": length}
        values = [_shown(name, wanted.get(name)) for name in form.shared]
        dealt = deck.deal(preset.cards[: limits.strategies])
        opened = gr.Tabs(selected=preset.tab)
        return preset.prompt, KINDS[preset.chat], *values, dealt, preset.point, opened, preset.tab

    for button, preset in zip(parts.presets, PRESETS, strict=True):
        outputs = [*fields, parts.deck, parts.point, parts.tabs.all, parts.tabs.opened]
        filled = button.click(partial(fill, preset=preset), parts.deck, outputs, **QUICK)
        filled.then(None, js=browser.background(preset.colour), **QUIET)


def _shown(name: str, value: Any) -> Any:
    """What a shared setting's field shows; without a value, its default."""
    return shown(SHARED[name], SHARED[name].default if value is None else value)


def _connect_runs(page: gr.Blocks, parts: Parts, labs: Labs, runs: Runs) -> None:
    """Connect what holds, stops, forks and forgets runs."""

    def stop(request: gr.Request) -> None:
        runs.stop(visitor(request))

    def leave(request: gr.Request) -> None:
        runs.forget(visitor(request))

    def pace(event: gr.EventData, request: gr.Request) -> None:
        runs.pace(visitor(request), str(wished(event._data).get("do")))

    def fork(event: gr.EventData, request: gr.Request) -> Iterator[str]:
        place = partial(forks.at_token, wished(event._data))
        yield from runs.fork(labs.lab, visitor(request), place)

    def edit(event: gr.EventData, request: gr.Request) -> Iterator[str]:
        place = partial(forks.at_edit, wished(event._data))
        yield from runs.fork(labs.lab, visitor(request), place)

    parts.actions.stop.click(stop, queue=False, **QUIET)
    page.unload(leave)
    told = {"trigger_mode": "multiple"}
    for changed in (parts.live.begun, parts.browser.drawn):
        changed(buttons_now(runs), None, parts.actions.switched, **told, **QUICK)
    parts.live.paced(pace, None, None, queue=False, **told, **QUIET)
    parts.live.forked(fork, None, parts.live, **RUNNING)
    parts.live.edited(edit, None, parts.live, **RUNNING)


def _connect_arrival(parts: Parts, labs: Labs, limits: Limits, runs: Runs) -> None:
    """Connect a visitor's arrival by a link, or back from a reload."""
    form, tabs = parts.form, parts.tabs
    raced = tabs.speculative.form

    @spoken
    def arrive(deck: Deck, event: gr.EventData, request: gr.Request) -> dict[Any, Any]:
        arrived = wished(event._data)
        news: dict[Any, Any] = {parts.live: gr.skip()}
        tab = arrived.get("tab")
        if tab in tabs.each:
            news |= {tabs.all: gr.Tabs(selected=tab), tabs.opened: tab}
        if arrived.get("feed"):
            again = runs.resume(visitor(request), str(arrived["feed"]))
            news[parts.live] = gr.skip() if again is None else again
        if arrived.get("state"):
            state = decode(str(arrived["state"]))
            if state.model in labs.names or labs.open:
                news[parts.model] = state.model
            else:
                warn(f"The link is for the model {state.model}, which is not offered here.")
            news |= {form.prompt: state.prompt, form.kind: KINDS[state.chat]}
            for name, field in form.shared.items():
                usual = _shown(name, None)
                news[field] = fitting(field, state.shared.get(name), usual)
            news[parts.deck] = deck.deal(state.cards[: limits.strategies]) if state.cards else deck
            news |= raced.restored(state.race)
        return news

    outputs = [*form.fields, parts.deck, parts.model, parts.live, tabs.all, tabs.opened]
    parts.browser.arrived(arrive, parts.deck, [*outputs, *raced.restorable], **QUICK)
