"""The strategy cards: one per run, drawn from the deck and the strategies' own declarations.

Knows how a card looks and which control belongs to which setting of which card. Refuses to know
any strategy by name and what a run does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.blocks import Block
from gradio.components import Component

from engine.settings import Limits, Setting
from playground import Playground
from playground.ui.controls import bind, control, shows
from playground.ui.deck import Card, Deck
from strategies import find

_FIRST = 3  # settings shown at once; the rest is folded


@dataclass(frozen=True)
class DrawnCard:
    """A card on the page: its parts, and its controls by setting name."""

    key: int
    picker: gr.Dropdown
    remove: gr.Button
    controls: Mapping[str, Component]


def draw(deck: Deck, lab: Playground, limits: Limits) -> list[DrawnCard]:
    """Draw every card of the deck side by side."""
    with gr.Row(elem_id="cards", equal_height=False):
        return [_card(card, len(deck.cards), lab, limits) for card in deck.cards]


def _card(card: Card, count: int, lab: Playground, limits: Limits) -> DrawnCard:
    strategy = find(card.strategy)
    with gr.Column(min_width=230, variant="panel", elem_classes="card", key=("card", card.key)):
        with gr.Row(elem_classes="card-head", key=("head", card.key)):
            picker = gr.Dropdown(
                [(_readable(id), id) for id in lab.offered()],
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
            remove = gr.Button(
                "Remove",
                size="sm",
                scale=0,
                min_width=70,
                interactive=count > 1,
                key=("remove", card.key),
            )
        gr.Markdown(strategy.summary, elem_classes="summary")
        controls = _controls(card, strategy.own_settings, lab.defaults(card.strategy), limits)
    return DrawnCard(card.key, picker, remove, controls)


def _controls(
    card: Card, settings: Mapping[str, Setting], defaults: Mapping[str, Any], limits: Limits
) -> dict[str, Component]:
    """The card's controls, the first few in sight, the rest folded unless one of them is set."""
    names = _names(settings)
    drawn: dict[str, Component] = {}

    def show(name: str) -> None:
        drawn[name] = control(
            settings[name],
            card.values.get(name),
            defaults.get(name),
            limits,
            key=("setting", card.key, card.strategy, name),
            elem_id=f"card-{card.key}-{name}",
        )

    with gr.Row(elem_classes="settings"):
        for name in names[:_FIRST]:
            show(name)
    folded = names[_FIRST:]
    if folded:
        given = any(card.values.get(name) is not None for name in folded)
        with (
            gr.Accordion(f"{len(folded)} more", open=given, key=("more", card.key, card.strategy)),
            gr.Row(elem_classes="settings"),
        ):
            for name in folded:
                show(name)
    return drawn


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
    settings, defaults = find(strategy).own_settings, lab.defaults(strategy)
    return {
        name: None if shows(settings[name], values[control], defaults[name]) else values[control]
        for name, control in controls.items()
        if name in settings
    }


def asked(deck: Deck, lab: Playground) -> list[tuple[str, dict[str, Any]]]:
    """The runs the deck asks for: each strategy with the settings that were given."""
    runs = []
    for card in deck.cards:
        settings = find(card.strategy).own_settings
        values = {name: value for name, value in card.values.items() if name in settings}
        runs.append((card.strategy, bind(settings, values, lab.defaults(card.strategy))))
    return runs


def heading(strategy: str, given: Mapping[str, Any], lab: Playground) -> tuple[str, str]:
    """A run's name and its settings: those in sight on its card, and all that were given."""
    settings, defaults = find(strategy).own_settings, lab.defaults(strategy)
    in_sight = {name: defaults[name] for name in _names(settings)[:_FIRST]}
    told = [f"{name} {value}" for name, value in {**in_sight, **given}.items() if value is not None]
    return _readable(strategy), " · ".join(told) or "no settings of its own"


def _names(settings: Mapping[str, Setting]) -> list[str]:
    """The settings a form can carry."""
    return [name for name, setting in settings.items() if not setting.python_only]


def _readable(strategy: str) -> str:
    return strategy.replace("_", " ")
