"""The registry of attacks. An attack takes a text, a strength and a seed and returns a text."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from playground.lab import Playground
from playground.stopping import Stop

OnTokens = Callable[[int], None]


@dataclass(frozen=True)
class Target:
    """The text to attack, and what an attacker has: the model, but not the key."""

    lab: Playground
    text: str
    ids: tuple[int, ...]
    stop: Stop | None = None
    on_tokens: OnTokens | None = None  # called with the number of new tokens


# Returns the attacked text or its tokens; all randomness comes from the given generator.
Change = Callable[[Target, float, Random], str | Sequence[int]]


@dataclass(frozen=True)
class Attack:
    """A registered attack. ``strength`` says what its strength measures; 0 changes nothing."""

    id: str
    title: str
    strength: str
    highest: float
    default: float  # strength to start from
    writes: bool  # the model generates text, which takes time
    change: Change

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring, shown as the description."""
        return " ".join((inspect.getdoc(self.change) or "").split("\n\n")[0].split())


_ATTACKS: dict[str, Attack] = {}


def attack(
    id: str,
    title: str,
    *,
    strength: str,
    highest: float = 1.0,
    default: float = 0.3,
    writes: bool = False,
) -> Callable[[Change], Change]:
    """Register an attack; attacks are listed in the order of registration."""

    def register(change: Change) -> Change:
        if id in _ATTACKS:
            raise ValueError(f"there are two attacks with the id {id!r}")
        _ATTACKS[id] = Attack(id, title, strength, highest, default, writes, change)
        return change

    return register


def registered() -> dict[str, Attack]:
    """All attacks by id."""
    return dict(_ATTACKS)
