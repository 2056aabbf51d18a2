"""The state of the form as a few characters that a link can carry.

A link may come from anyone: its size is bounded, and only values that a form can hold are accepted.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from engine.errors import PlaygroundError
from engine.settings import SHARED
from playground.ui.compare.cards import Card, FieldValue, checked, checked_values

VERSION = 1
MAX_CHARACTERS = 400_000  # of a decompressed link
_OLD_NAMES = {"race": "speculative"}  # of pages, in links made by earlier releases


@dataclass(frozen=True)
class State:
    """What the controls of the form show."""

    model: str
    prompt: str
    chat: bool = False
    shared: Mapping[str, FieldValue] = field(default_factory=dict)
    cards: tuple[Card, ...] = ()
    pages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # what changed on others

    @staticmethod
    def of(
        model: str,
        prompt: str,
        chat: bool,
        shared: Mapping[str, Any],
        cards: Iterable[Card],
        pages: Mapping[str, Mapping[str, Any]],
    ) -> State:
        """The state of a form that shows these values."""
        filled = tuple(Card(card.strategy, _filled(card.values)) for card in cards)
        return State(model, prompt, chat, _filled(shared), filled, pages)


def _filled(values: Mapping[str, Any]) -> dict[str, FieldValue]:
    return {name: value for name, value in values.items() if value is not None and value != ""}


def encode(state: State) -> str:
    """The state in characters that an address may contain."""
    cards = [(card.strategy, card.values) for card in state.cards]
    data = {"version": VERSION, **asdict(state), "cards": cards}
    text = json.dumps(data, separators=(",", ":"))
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
            shared=checked_values(data["shared"], SHARED),
            cards=tuple(checked(strategy, values) for strategy, values in data["cards"]),
            pages={name: dict(values) for name, values in pages.items()},
        )
    except (ValueError, TypeError, KeyError, AttributeError, zlib.error, RecursionError) as error:
        raise PlaygroundError(f"this link cannot be read ({error})") from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a string")
    return value
