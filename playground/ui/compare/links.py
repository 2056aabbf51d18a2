"""The state of the form as a few characters that a link can carry.

A link may come from anyone: its size is bounded, and only values that a form can hold are accepted.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from engine.errors import PlaygroundError
from engine.settings import SHARED
from playground.ui.compare.cards import CardList
from strategies import registered

VERSION = 1
MAX_CHARACTERS = 400_000  # of a decompressed link
_OLD_NAMES = {"race": "speculative"}  # of pages, in links made by earlier releases

FieldValue = str | int | float | bool | None


@dataclass(frozen=True)
class State:
    """What the controls of the form show."""

    model: str
    prompt: str
    chat: bool = False
    shared: Mapping[str, FieldValue] = field(default_factory=dict)
    cards: tuple[tuple[str, Mapping[str, FieldValue]], ...] = ()
    pages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # what changed on others

    @staticmethod
    def of(
        model: str,
        prompt: str,
        chat: bool,
        shared: Mapping[str, Any],
        cards: CardList,
        pages: Mapping[str, Mapping[str, Any]],
    ) -> State:
        """The state of a form that shows these values."""
        filled = tuple((card.strategy, _filled(card.values)) for card in cards.cards)
        return State(model, prompt, chat, _filled(shared), filled, pages)


def _filled(values: Mapping[str, Any]) -> dict[str, FieldValue]:
    return {name: value for name, value in values.items() if value is not None and value != ""}


def encode(state: State) -> str:
    """The state in characters that an address may contain."""
    text = json.dumps({"version": VERSION, **asdict(state)}, separators=(",", ":"))
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")


def decode(text: str) -> State:
    """The state that was encoded, or a `PlaygroundError`."""
    try:
        compressed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        data = json.loads(zlib.decompressobj().decompress(compressed, MAX_CHARACTERS))
        if data.pop("version") != VERSION:
            raise ValueError("unknown version")
        pages = {new: data[old] for old, new in _OLD_NAMES.items() if old in data}
        pages |= data.get("pages", {})
        return State(
            model=_text(data["model"]),
            prompt=_text(data["prompt"]),
            chat=data["chat"] is True,
            shared=_values(data["shared"], SHARED),
            cards=tuple(_card(strategy, values) for strategy, values in data["cards"]),
            pages={name: dict(values) for name, values in pages.items()},
        )
    except (ValueError, TypeError, KeyError, AttributeError, zlib.error, RecursionError) as error:
        raise PlaygroundError(f"this link cannot be read ({error})") from error


def _card(strategy: Any, values: Any) -> tuple[str, dict[str, FieldValue]]:
    if strategy not in registered():
        raise ValueError(f"unknown strategy {strategy!r}")
    return strategy, _values(values, registered()[strategy].settings)


def _values(values: Any, known: Mapping[str, Any]) -> dict[str, FieldValue]:
    if unknown := [name for name in values if name not in known]:
        raise ValueError(f"unknown setting {unknown[0]!r}")
    if invalid := [name for name in values if not isinstance(values[name], FieldValue)]:
        raise ValueError(f"invalid value of {invalid[0]}")
    return dict(values)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a string")
    return value
