"""The strategies of a comparison as the form holds them: cards, each with what its controls show.

Plain frozen values, tuples inside, because Gradio hashes the state it watches. Refuses to know
controls and what a shown value means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Card:
    """One strategy of the comparison. ``key`` stays its own as cards come and go."""

    key: int
    strategy: str
    shown: tuple[tuple[str, Any], ...] = ()

    @property
    def values(self) -> dict[str, Any]:
        """What the card's controls show, by setting name."""
        return dict(self.shown)


@dataclass(frozen=True)
class Deck:
    """The cards in order; keys are not used twice, so that no control inherits another's value."""

    cards: tuple[Card, ...] = ()
    next_key: int = 0

    def add(self, strategy: str, values: Mapping[str, Any] | None = None) -> Deck:
        """The deck with one more card at the end."""
        card = Card(self.next_key, strategy, tuple((values or {}).items()))
        return Deck((*self.cards, card), self.next_key + 1)

    def remove(self, key: int) -> Deck:
        """The deck without one card."""
        return replace(self, cards=tuple(card for card in self.cards if card.key != key))

    def duplicate(self, key: int) -> Deck:
        """The deck with a second card like this one beside it."""
        cards: list[Card] = []
        for card in self.cards:
            cards += [card, replace(card, key=self.next_key)] if card.key == key else [card]
        return Deck(tuple(cards), self.next_key + 1)

    def move(self, key: int, places: int) -> Deck:
        """The deck with one card so many places further on, at most at the end."""
        cards = list(self.cards)
        at = [card.key for card in cards].index(key)
        cards.insert(max(0, at + places), cards.pop(at))
        return replace(self, cards=tuple(cards))

    def give(self, key: int, name: str, shown: Any) -> Deck:
        """The deck with one more value on one card."""
        return self.fill({key: {name: shown}})

    def choose(self, key: int, strategy: str) -> Deck:
        """The deck with one card's strategy changed; settings the two share by name are kept."""
        return self._map(lambda card: replace(card, strategy=strategy) if card.key == key else card)

    def fill(self, values: Mapping[int, Mapping[str, Any]]) -> Deck:
        """The deck with what the controls show now, by card key."""
        return self._map(
            lambda card: replace(
                card, shown=tuple({**card.values, **values.get(card.key, {})}.items())
            )
        )

    def deal(self, cards: tuple[tuple[str, Mapping[str, Any]], ...]) -> Deck:
        """A new hand of cards in place of these."""
        deck = replace(self, cards=())
        for strategy, values in cards:
            deck = deck.add(strategy, values)
        return deck

    def _map(self, change: Callable[[Card], Card]) -> Deck:
        return replace(self, cards=tuple(map(change, self.cards)))
