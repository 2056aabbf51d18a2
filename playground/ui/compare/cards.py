"""The strategy cards: one per run, drawn from the deck and the strategies' own declarations.

Knows how a card looks and which control belongs to which setting of which card. Refuses to know
any strategy by name and what a run does.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.blocks import Block
from gradio.components import Component

from engine.settings import SHARED, Limits, Setting
from engine.strategy import Strategy
from playground import Playground
from playground.ui.compare.card_state import Card, Deck
from playground.ui.shared.controls import bind, carriable, control, shown, shows, spelled
from strategies import find

Asked = tuple[str, dict[str, Any]]  # a strategy and the settings that were given

_FIRST = 4  # settings shown at once; the rest is folded
_TOLD = 3  # of them in a run's heading
_LAST = ("num_return_sequences",)  # says nothing about how the text is written
_ALSO = "for this card only …"


@dataclass(frozen=True)
class DrawnCard:
    """A card on the page: its parts, and its controls by setting name."""

    key: int
    picker: gr.Dropdown
    sooner: gr.Button
    later: gr.Button
    duplicate: gr.Button
    remove: gr.Button
    also: gr.Dropdown
    controls: Mapping[str, Component]
    folds: Mapping[str, gr.Accordion]  # by the setting that must be on for what is in them


def draw(deck: Deck, lab: Playground, limits: Limits) -> list[DrawnCard]:
    """Draw every card of the deck side by side."""
    with gr.Row(elem_id="cards", equal_height=False):
        return [_card(place, deck, lab, limits) for place in range(len(deck.cards))]


def _card(place: int, deck: Deck, lab: Playground, limits: Limits) -> DrawnCard:
    card, last = deck.cards[place], len(deck.cards) - 1
    strategy = find(card.strategy)
    with gr.Column(min_width=230, variant="panel", elem_classes="card", key=("card", card.key)):
        with gr.Row(elem_classes="card-head", key=("head", card.key)):
            picker = gr.Dropdown(
                [(readable(id), id) for id in dict.fromkeys([*lab.offered(), card.strategy])],
                value=card.strategy,
                label="strategy",
                show_label=False,
                container=False,
                interactive=True,
                filterable=False,
                min_width=120,
                scale=1,
                key=("strategy", card.key),
            )
        with gr.Row(elem_classes="card-moves", key=("moves", card.key)):
            buttons = (
                _small("←", "sooner", card, place > 0),
                _small("→", "later", card, place < last),
                _small("Duplicate", "duplicate", card, last + 1 < limits.strategies),
                _small("Remove", "remove", card, last > 0),
            )
        gr.Markdown(strategy.summary, elem_classes="summary")
        controls, folds = _controls(card, strategy, lab.defaults(card.strategy), limits)
        also = gr.Dropdown(
            [(_ALSO, ""), *(name for name in carriable(SHARED) if name not in controls)],
            value="",
            label="One of the settings for every strategy, set here alone",
            show_label=False,
            container=False,
            interactive=True,
            filterable=False,
            elem_classes="also",
            key=("also", card.key),
        )
    return DrawnCard(card.key, picker, *buttons, also, controls, folds)


def _small(words: str, name: str, card: Card, usable: bool) -> gr.Button:
    return gr.Button(
        words,
        size="sm",
        scale=0,
        min_width=28,
        interactive=usable,
        elem_classes=["small", name],
        elem_id=f"card-{card.key}-{name}",
        key=(name, card.key),
    )


def _controls(
    card: Card, strategy: Strategy, defaults: Mapping[str, Any], limits: Limits
) -> tuple[dict[str, Component], dict[str, gr.Accordion]]:
    """The card's controls: the first few in sight, the rest folded unless one of them is set; those
    that matter only with another one, to be seen when that is on; and of the settings for every
    strategy those that this card has for itself."""
    settings = carried(strategy)
    drawn: dict[str, Component] = {}

    def show(names: Sequence[str], classes: str = "settings") -> None:
        with gr.Row(elem_classes=classes):
            for name in names:
                drawn[name] = control(
                    settings[name] if name in settings else SHARED[name],
                    card.values.get(name),
                    defaults.get(name),
                    limits,
                    key=("setting", card.key, card.strategy, name),
                    elem_id=f"card-{card.key}-{name}",
                )

    def fold(names: Sequence[str], words: str, **how: Any) -> gr.Accordion:
        given = any(card.values.get(name) is not None for name in names)
        key = ("more", card.key, card.strategy, names[0])
        folded = gr.Accordion(f"{len(names)} {words}", open=given, key=key, **how)
        with folded:
            show(names)
        return folded

    switches = {name: _switch(setting, settings) for name, setting in settings.items()}
    always = [name for name, switch in switches.items() if switch is None]
    show(always[:_FIRST])
    if always[_FIRST:]:
        fold(always[_FIRST:], "more")
    folds = {
        switch: fold(
            [name for name in switches if switches[name] == switch],
            f"more with {switch}",
            visible=bool(card.values.get(switch) or defaults.get(switch)),
        )
        for switch in dict.fromkeys(filter(None, switches.values()))
    }
    if own := [name for name in alone(card) if name not in settings]:
        show(own, "settings alone")
    return drawn, folds


def _switch(setting: Setting, settings: Mapping[str, Setting]) -> str | None:
    """The control that must be on for a setting to matter; None where nothing can turn it off."""
    return setting.only_with if setting.only_with in settings else None


def alone(card: Card) -> list[str]:
    """The settings for every strategy that a card has for itself."""
    return [name for name, value in card.values.items() if name in SHARED and value is not None]


def filled(
    deck: Deck, drawn: Sequence[DrawnCard], values: Mapping[Block, Any], lab: Playground
) -> Deck:
    """The deck with what the controls show; defaults are not carried to another strategy."""
    strategies = {card.key: card.strategy for card in deck.cards}
    return deck.fill(
        {
            card.key: _given(strategies[card.key], card.controls, values, lab)
            for card in drawn
            if card.key in strategies
        }
    )


def _given(
    strategy: str, controls: Mapping[str, Component], values: Mapping[Block, Any], lab: Playground
) -> dict[str, Any]:
    settings, defaults = find(strategy).settings, lab.defaults(strategy)
    own = find(strategy).own_settings
    return {
        name: None
        if name in own and shows(settings[name], values[control], defaults[name])
        else values[control]
        for name, control in controls.items()
        if name in settings
    }


def asked(deck: Deck, lab: Playground) -> list[Asked]:
    """The runs the deck asks for, card by card."""
    return [asked_by(card, lab) for card in deck.cards]


def asked_by(card: Card, lab: Playground) -> Asked:
    """The run a card asks for."""
    settings = find(card.strategy).settings
    values = {name: value for name, value in card.values.items() if name in settings}
    return card.strategy, bind(settings, values, lab.defaults(card.strategy))


def showing(strategy: str, given: Mapping[str, Any], lab: Playground) -> dict[str, Any]:
    """What a card's controls show for settings that were given; defaults are left to the model."""
    defaults = lab.defaults(strategy)
    return {
        name: shown(setting, given[name])
        for name, setting in carried(find(strategy)).items()
        if name in given and given[name] != defaults[name]
    }


def heading(strategy: str, given: Mapping[str, Any], lab: Playground) -> tuple[str, str]:
    """A run's name and its settings: the first of its card, and all that were given."""
    defaults = lab.defaults(strategy)
    first = {name: defaults[name] for name in list(carried(find(strategy)))[:_TOLD]}
    values = {**first, **given}
    told = [f"{name} {spelled(value)}" for name, value in values.items() if value is not None]
    return readable(strategy), " · ".join(told) or "no settings of its own"


def carried(strategy: Strategy) -> dict[str, Setting]:
    """The settings a card has controls for, those the strategy adds before those it inherits."""
    settings = carriable(strategy.own_settings)
    order = dict.fromkeys(_declared(strategy.params))
    names = sorted((name for name in order if name in settings), key=_LAST.__contains__)
    return {name: settings[name] for name in names}


def _declared(params: type) -> Iterator[str]:
    """The fields of a dataclass as it lists them, but a class before its bases."""
    yield from inspect.get_annotations(params)
    for base in reversed(params.__bases__):
        yield from _declared(base)


def readable(strategy: str) -> str:
    """A strategy's name as people read it."""
    return strategy.replace("_", " ")
