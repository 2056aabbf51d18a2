"""The strategy cards: their state, their controls, and the runs they ask for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gradio as gr
from gradio.blocks import Block
from gradio.components import Component

from engine.settings import SHARED, Limits, Setting
from engine.strategy import Strategy
from playground import Playground
from playground.ui.shared.comparison import strategy_title
from playground.ui.shared.controls import as_text, control, given, shown, shows, with_controls
from strategies import find

Choice = tuple[str, dict[str, Any]]  # a strategy and the settings that were given

_VISIBLE_SETTINGS = 4  # the rest is in an accordion
_HEADING_SETTINGS = 3  # in a column's heading, even if they are not set
_LAST = ("num_return_sequences",)  # does not affect how the text is written
_ADD_SETTING = "Add a setting …"


# State: plain frozen values, because Gradio hashes the state it watches


@dataclass(frozen=True)
class Card:
    """One strategy of the comparison. Its ``key`` is unique and never changes."""

    key: int
    strategy: str
    shown: tuple[tuple[str, Any], ...] = ()

    @property
    def values(self) -> dict[str, Any]:
        """What the card's controls show, by setting name."""
        return dict(self.shown)


@dataclass(frozen=True)
class CardList:
    """The cards in order. A key is not used twice, so no control gets the value of another."""

    cards: tuple[Card, ...] = ()
    next_key: int = 0

    def add(self, strategy: str, values: Mapping[str, Any] | None = None) -> CardList:
        """Append a card."""
        card = Card(self.next_key, strategy, tuple((values or {}).items()))
        return CardList((*self.cards, card), self.next_key + 1)

    def remove(self, key: int) -> CardList:
        """Remove a card."""
        return replace(self, cards=tuple(card for card in self.cards if card.key != key))

    def duplicate(self, key: int) -> CardList:
        """Insert a copy of a card after it."""
        cards: list[Card] = []
        for card in self.cards:
            cards += [card, replace(card, key=self.next_key)] if card.key == key else [card]
        return CardList(tuple(cards), self.next_key + 1)

    def move(self, key: int, places: int) -> CardList:
        """Move a card by some places, at most to either end."""
        cards = list(self.cards)
        at = [card.key for card in cards].index(key)
        cards.insert(max(0, at + places), cards.pop(at))
        return replace(self, cards=tuple(cards))

    def set_strategy(self, key: int, strategy: str) -> CardList:
        """Change a card's strategy; settings that both have are kept."""
        return self._map(lambda card: replace(card, strategy=strategy) if card.key == key else card)

    def set_values(self, values: Mapping[int, Mapping[str, Any]]) -> CardList:
        """Change what controls show, by card key and setting name."""
        return self._map(
            lambda card: replace(
                card, shown=tuple({**card.values, **values.get(card.key, {})}.items())
            )
        )

    def replaced(self, cards: Sequence[tuple[str, Mapping[str, Any]]]) -> CardList:
        """New cards in place of all."""
        new = replace(self, cards=())
        for strategy, values in cards:
            new = new.add(strategy, values)
        return new

    def _map(self, change: Callable[[Card], Card]) -> CardList:
        return replace(self, cards=tuple(map(change, self.cards)))


# Components


@dataclass(frozen=True)
class CardComponents:
    """The components of a card, its controls by setting name."""

    key: int
    strategy: gr.Dropdown
    left: gr.Button
    right: gr.Button
    duplicate: gr.Button
    remove: gr.Button
    add_setting: gr.Dropdown
    controls: Mapping[str, Component]
    # Accordions that are visible while a setting is on, by that setting.
    conditional: Mapping[str, gr.Accordion]


def build_cards(state: CardList, lab: Playground, limits: Limits) -> list[CardComponents]:
    """Build the cards side by side."""
    with gr.Row(elem_id="cards", equal_height=False):
        return [_card(place, state, lab, limits) for place in range(len(state.cards))]


def _card(place: int, state: CardList, lab: Playground, limits: Limits) -> CardComponents:
    card, last = state.cards[place], len(state.cards) - 1
    strategy = find(card.strategy)
    with gr.Column(min_width=230, variant="panel", elem_classes="card", key=("card", card.key)):
        with gr.Row(elem_classes="card-head", key=("head", card.key)):
            picker = gr.Dropdown(
                [(strategy_title(id), id) for id in dict.fromkeys([*lab.offered(), card.strategy])],
                value=card.strategy,
                label="Strategy",
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
                _button("←", "sooner", card, place > 0),
                _button("→", "later", card, place < last),
                _button("Duplicate", "duplicate", card, last + 1 < limits.strategies),
                _button("Remove", "remove", card, last > 0),
            )
        gr.Markdown(strategy.summary, elem_classes="summary")
        controls, conditional = _controls(card, strategy, lab.defaults(card.strategy), limits)
        add_setting = gr.Dropdown(
            [(_ADD_SETTING, ""), *(name for name in with_controls(SHARED) if name not in controls)],
            value="",
            label="Override a shared setting for this strategy",
            show_label=False,
            container=False,
            interactive=True,
            filterable=False,
            elem_classes="also",
            key=("also", card.key),
        )
    return CardComponents(card.key, picker, *buttons, add_setting, controls, conditional)


def _button(label: str, name: str, card: Card, enabled: bool) -> gr.Button:
    return gr.Button(
        label,
        size="sm",
        scale=0,
        min_width=28,
        interactive=enabled,
        elem_classes=["small", name],
        elem_id=f"card-{card.key}-{name}",
        key=(name, card.key),
    )


def _controls(
    card: Card, strategy: Strategy, defaults: Mapping[str, Any], limits: Limits
) -> tuple[dict[str, Component], dict[str, gr.Accordion]]:
    """The card's controls: the first few, an accordion with the rest, an accordion for settings
    that need another one to be on, and the shared settings that this card overrides."""
    settings = card_settings(strategy)
    built: dict[str, Component] = {}

    def build(names: Sequence[str], classes: str = "settings") -> None:
        with gr.Row(elem_classes=classes):
            for name in names:
                built[name] = control(
                    settings[name] if name in settings else SHARED[name],
                    card.values.get(name),
                    defaults.get(name),
                    limits,
                    key=("setting", card.key, card.strategy, name),
                    elem_id=f"card-{card.key}-{name}",
                )

    def accordion(names: Sequence[str], title: str, **options: Any) -> gr.Accordion:
        is_set = any(card.values.get(name) is not None for name in names)
        key = ("more", card.key, card.strategy, names[0])
        folded = gr.Accordion(f"{len(names)} {title}", open=is_set, key=key, **options)
        with folded:
            build(names)
        return folded

    switches = {name: _switch(setting, settings) for name, setting in settings.items()}
    always = [name for name, switch in switches.items() if switch is None]
    build(always[:_VISIBLE_SETTINGS])
    if always[_VISIBLE_SETTINGS:]:
        accordion(always[_VISIBLE_SETTINGS:], "more")
    conditional = {
        switch: accordion(
            [name for name in switches if switches[name] == switch],
            f"more with {switch}",
            visible=bool(card.values.get(switch) or defaults.get(switch)),
        )
        for switch in dict.fromkeys(filter(None, switches.values()))
    }
    if overridden := [name for name in shared_overrides(card) if name not in settings]:
        build(overridden, "settings alone")
    return built, conditional


def _switch(setting: Setting, settings: Mapping[str, Setting]) -> str | None:
    """The setting of this card that must be on for another to take effect, if there is one."""
    return setting.only_with if setting.only_with in settings else None


def shared_overrides(card: Card) -> list[str]:
    """The shared settings that a card overrides."""
    return [name for name, value in card.values.items() if name in SHARED and value is not None]


# Values


def read_cards(
    state: CardList,
    components: Sequence[CardComponents],
    values: Mapping[Block, Any],
    lab: Playground,
) -> CardList:
    """The state with what the controls show now; a default becomes None, so that it does not
    stay when the strategy is changed."""
    strategies = {card.key: card.strategy for card in state.cards}
    return state.set_values(
        {
            card.key: _read(strategies[card.key], card.controls, values, lab)
            for card in components
            if card.key in strategies
        }
    )


def _read(
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


def choices(state: CardList, lab: Playground) -> list[Choice]:
    """The runs that the cards ask for."""
    return [choice(card, lab) for card in state.cards]


def choice(card: Card, lab: Playground) -> Choice:
    """The run that a card asks for."""
    settings = find(card.strategy).settings
    values = {name: value for name, value in card.values.items() if name in settings}
    return card.strategy, given(settings, values, lab.defaults(card.strategy))


def card_values(strategy: str, settings: Mapping[str, Any], lab: Playground) -> dict[str, Any]:
    """What a card's controls show for these settings, defaults left out."""
    defaults = lab.defaults(strategy)
    return {
        name: shown(setting, settings[name])
        for name, setting in card_settings(find(strategy)).items()
        if name in settings and settings[name] != defaults[name]
    }


def heading(strategy: str, settings: Mapping[str, Any], lab: Playground) -> tuple[str, str]:
    """A run's title and its settings: the first ones of the card, and all that were given."""
    defaults = lab.defaults(strategy)
    first = list(card_settings(find(strategy)))[:_HEADING_SETTINGS]
    values = {**{name: defaults[name] for name in first}, **settings}
    listed = [f"{name} {as_text(value)}" for name, value in values.items() if value is not None]
    return strategy_title(strategy), " · ".join(listed) or "no settings"


def card_settings(strategy: Strategy) -> dict[str, Setting]:
    """The settings with a control on the card; those a strategy adds before inherited ones."""
    settings = with_controls(strategy.own_settings)
    order = dict.fromkeys(_declared(strategy.params))
    names = sorted((name for name in order if name in settings), key=_LAST.__contains__)
    return {name: settings[name] for name in names}


def _declared(params: type) -> Iterator[str]:
    """The fields of a dataclass in the order of their declaration, a class before its bases."""
    yield from inspect.get_annotations(params)
    for base in reversed(params.__bases__):
        yield from _declared(base)
