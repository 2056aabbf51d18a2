"""What an attack on a watermark is, and the register of them.

Knows the contract: a text, a strength and a seed in, another text out. Refuses to know any attack
and any detector.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from engine.run_control import RunControl
from playground.lab import Playground

Stop = threading.Event | RunControl
OnTokens = Callable[[int], None]


class Stopped(Exception):
    """Somebody stopped an attack before it had a text to show."""


@dataclass(frozen=True)
class Target:
    """The text that is attacked, and what an attacker has at hand: the model, but not the key."""

    lab: Playground
    text: str
    ids: tuple[int, ...]
    stop: Stop | None = None
    on_tokens: OnTokens | None = None  # told how many tokens the model has just written

    def check_stop(self) -> None:
        """Give up where somebody asked for that."""
        if self.stop is not None and self.stop.is_set():
            raise Stopped


# The attacked text, or its tokens; all chance comes from the generator it is given.
Change = Callable[[Target, float, Random], str | Sequence[int]]


@dataclass(frozen=True)
class Attack:
    """One registered attack. Strength 0 changes nothing; ``strength`` says what it measures."""

    id: str
    title: str
    strength: str
    highest: float
    usual: float  # a strength that shows what the attack does
    writes: bool  # the model writes, which takes its time
    change: Change

    @property
    def summary(self) -> str:
        """The docstring's first paragraph on one line: the text people read about the attack."""
        return " ".join((inspect.getdoc(self.change) or "").split("\n\n")[0].split())


_REGISTER: dict[str, Attack] = {}


def attack(
    id: str,
    title: str,
    *,
    strength: str,
    highest: float = 1.0,
    usual: float = 0.3,
    writes: bool = False,
) -> Callable[[Change], Change]:
    """Register a change of texts under ``id``; people see attacks in the order of registering."""

    def register(change: Change) -> Change:
        if id in _REGISTER:
            raise ValueError(f"two attacks are called {id!r}")
        _REGISTER[id] = Attack(id, title, strength, highest, usual, writes, change)
        return change

    return register


def registered() -> dict[str, Attack]:
    """Every attack by its id."""
    return dict(_REGISTER)
