"""The strategies of the comparison: one card for each, edited in the browser.

The browser keeps the cards as JSON, in the value of a hidden component. Python reads them when it
needs them, and replaces them for presets, links and files. A catalog says which strategies the
loaded model offers and how to show their settings.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import gradio as gr

from engine.errors import PlaygroundError
from engine.settings import SHARED, Limits, Setting
from engine.strategy import Strategy
from playground import Playground
from playground.ui import assets
from playground.ui.shared import controls
from playground.ui.shared.comparison import strategy_title
from playground.ui.shared.controls import as_text, given, shown, with_controls
from strategies import find, registered

Choice = tuple[str, dict[str, Any]]  # a strategy and the settings that were given
FieldValue = str | int | float | bool | None  # what a field can show

# Adds a strategy to the comparison.
ADD_STRATEGY = assets.listener("compare/web/cards.js", "addStrategy")

_LAST = ("num_return_sequences",)  # does not affect how the text is written
_MAX_CHARACTERS = 400_000  # of the JSON


@dataclass(frozen=True)
class Card:
    """One strategy of the comparison."""

    strategy: str
    # What the fields show, by setting name; a missing one shows the default.
    values: Mapping[str, FieldValue] = field(default_factory=dict)
    key: int | None = None  # identifies the card in the browser

    def to_dict(self) -> dict[str, Any]:
        """As the browser reads it."""
        return {"key": self.key, "strategy": self.strategy, "values": dict(self.values)}


# Components


def card_state(cards: Iterable[Card]) -> gr.HTML:
    """The hidden component whose value is the cards."""
    return gr.HTML(
        value=to_json(cards),
        html_template="",
        js_on_load=assets.mount("compare/web/card_state.js"),
        elem_id="cards",
        elem_classes="signal",
    )


def catalog_state() -> gr.HTML:
    """The hidden component whose value is the `catalog`; empty until a model is loaded."""
    return gr.HTML(
        value="",
        html_template="",
        js_on_load=assets.mount("compare/web/catalog_state.js"),
        elem_id="catalog",
        elem_classes="signal",
    )


def catalog(lab: Playground, limits: Limits) -> str:
    """The strategies that a model offers, with the fields of their settings, as JSON."""
    offered = lab.offered()
    strategies = [
        {
            "id": id,
            "title": strategy_title(id),
            "summary": find(id).summary,
            "offered": id in offered,
            "fields": _fields(card_settings(find(id)), lab.defaults(id), limits),
        }
        for id in registered()
    ]
    shared = {name: setting.default for name, setting in SHARED.items()}
    data = {
        "strategies": strategies,
        "shared": _fields(with_controls(SHARED), shared, limits),
        "most": limits.strategies,
    }
    return json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")


def _fields(
    settings: Mapping[str, Setting], defaults: Mapping[str, Any], limits: Limits
) -> list[dict[str, Any]]:
    return [
        {
            **asdict(controls.field(setting, defaults.get(name), limits)),
            "onlyWith": setting.only_with if setting.only_with in settings else None,
        }
        for name, setting in settings.items()
    ]


# JSON


def to_json(cards: Iterable[Card]) -> str:
    """The cards as the browser reads them."""
    data = [card.to_dict() for card in cards]
    return json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")


def from_json(text: Any, limits: Limits) -> list[Card]:
    """The cards that a browser sent, or a `PlaygroundError`: they may have been forged."""
    try:
        if not isinstance(text, str) or len(text) > _MAX_CHARACTERS:
            raise ValueError("they are too large")
        cards = [_card(item) for item in json.loads(text)]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise PlaygroundError(f"the strategies cannot be read: {error}; reload the page") from error
    if not 0 < len(cards) <= limits.strategies:
        raise PlaygroundError(
            f"{len(cards)} strategies; a comparison has 1 to {limits.strategies} of them"
        )
    return cards


def _card(item: Any) -> Card:
    key = item.get("key")
    return checked(item["strategy"], item["values"], key if type(key) is int else None)


def checked(strategy: Any, values: Any, key: int | None = None) -> Card:
    """A card from outside; a ValueError if its strategy or a setting is unknown."""
    if strategy not in registered():
        raise ValueError(f"unknown strategy {strategy!r}")
    return Card(strategy, checked_values(values, find(strategy).settings), key)


def checked_values(values: Any, known: Mapping[str, Any]) -> dict[str, FieldValue]:
    """Values of fields from outside; a ValueError if a setting is unknown or its value invalid."""
    if unknown := [name for name in values if name not in known]:
        raise ValueError(f"unknown setting {unknown[0]!r}")
    if invalid := [name for name in values if not isinstance(values[name], FieldValue)]:
        raise ValueError(f"invalid value of {invalid[0]}")
    return dict(values)


# Values


def choice(card: Card, lab: Playground) -> Choice:
    """The run that a card asks for. Settings of another strategy, which the card had before, are
    left out."""
    settings = find(card.strategy).settings
    values = {name: value for name, value in card.values.items() if name in settings}
    return card.strategy, given(settings, values, lab.defaults(card.strategy))


def card_values(
    strategy: str, settings: Mapping[str, Any], lab: Playground
) -> dict[str, FieldValue]:
    """What a card's fields show for these settings, defaults left out."""
    defaults = lab.defaults(strategy)
    return {
        name: shown(setting, settings[name])
        for name, setting in card_settings(find(strategy)).items()
        if name in settings and settings[name] != defaults[name]
    }


def heading(strategy: str, settings: Mapping[str, Any]) -> tuple[str, str]:
    """A run's title, and the settings that differ from the defaults."""
    listed = [f"{name} {as_text(value)}" for name, value in settings.items() if value is not None]
    return strategy_title(strategy), " · ".join(listed) or "default settings"


def card_settings(strategy: Strategy) -> dict[str, Setting]:
    """The settings with a field on the card; those a strategy adds before inherited ones."""
    settings = with_controls(strategy.own_settings)
    order = dict.fromkeys(_declared(strategy.params))
    names = sorted((name for name in order if name in settings), key=_LAST.__contains__)
    return {name: settings[name] for name in names}


def _declared(params: type) -> Iterator[str]:
    """The fields of a dataclass in the order of their declaration, a class before its bases."""
    yield from inspect.get_annotations(params)
    for base in reversed(params.__bases__):
        yield from _declared(base)


def cards_of(items: Sequence[tuple[str, Mapping[str, Any]]], limits: Limits) -> list[Card]:
    """Cards of these strategies and values, as many as a comparison may have."""
    return [Card(strategy, values) for strategy, values in items[: limits.strategies]]
