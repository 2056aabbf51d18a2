"""Everything a visitor has set, as a few characters a link can carry.

Knows the form's values by name. Refuses to know components. A link may come from anybody: what it
unfolds to is bounded, and only values that a form could hold are taken.
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
from playground.ui.compare.card_state import Deck
from strategies import registered

VERSION = 1
LARGEST = 400_000  # characters a link may unfold to

Shown = str | int | float | bool | None


@dataclass(frozen=True)
class State:
    """The form: what its controls show."""

    model: str
    prompt: str
    chat: bool = False
    shared: Mapping[str, Shown] = field(default_factory=dict)
    cards: tuple[tuple[str, Mapping[str, Shown]], ...] = ()
    race: Mapping[str, Any] = field(default_factory=dict)  # what was changed in the tab Speculative

    @staticmethod
    def of(
        model: str,
        prompt: str,
        chat: bool,
        shared: Mapping[str, Any],
        deck: Deck,
        race: Mapping[str, Any],
    ) -> State:
        """The state of a form that shows these values."""
        cards = tuple((card.strategy, _given(card.values)) for card in deck.cards)
        return State(model, prompt, chat, _given(shared), cards, race)


def _given(values: Mapping[str, Any]) -> dict[str, Shown]:
    return {name: value for name, value in values.items() if value is not None and value != ""}


def encode(state: State) -> str:
    """The state in characters that an address may have."""
    text = json.dumps({"version": VERSION, **asdict(state)}, separators=(",", ":"))
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")


def decode(text: str) -> State:
    """The state that `encode` made a text of, or a `PlaygroundError`."""
    try:
        unfolding = zlib.decompressobj()
        folded = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        data = json.loads(unfolding.decompress(folded, LARGEST))
        if data.pop("version") != VERSION:
            raise ValueError("it is of another version")
        return State(
            model=_text(data["model"]),
            prompt=_text(data["prompt"]),
            chat=data["chat"] is True,
            shared=_values(data["shared"], SHARED),
            cards=tuple(_card(strategy, values) for strategy, values in data["cards"]),
            race=dict(data.get("race", {})),  # links were made before there were races
        )
    except (ValueError, TypeError, KeyError, AttributeError, zlib.error, RecursionError) as error:
        raise PlaygroundError(f"this link cannot be read ({error})") from error


def _card(strategy: Any, values: Any) -> tuple[str, dict[str, Shown]]:
    if strategy not in registered():
        raise ValueError(f"there is no strategy {strategy!r}")
    return strategy, _values(values, registered()[strategy].settings)


def _values(values: Any, known: Mapping[str, Any]) -> dict[str, Shown]:
    if unknown := [name for name in values if name not in known]:
        raise ValueError(f"there is no setting {unknown[0]!r}")
    if strange := [name for name in values if not isinstance(values[name], Shown)]:
        raise ValueError(f"{strange[0]} is no value of a form")
    return dict(values)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value
