"""What a decoding strategy is: a generator that asks for children of nodes and gets them back
evaluated.

Knows the contract and keeps the register. Refuses to know any strategy.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from engine.accel.host_future import HostFuture
from engine.errors import PlaygroundError, did_you_mean
from engine.run import Run
from engine.settings import SHARED, Setting, settings_of
from engine.trie.node import Ask, Node

# Asks for nodes and gets them, or for what a device was asked and gets the answer.
Decoding = Generator[Sequence[Ask] | HostFuture, Any, None]
__all__ = ["Ask", "Decoding", "Strategy", "find", "registered", "registration", "strategy"]

Decode = Callable[[Run, Any], Decoding]


class Reshape(Protocol):
    """A strategy's own change to the logits at a node, apart from what it chooses."""

    def __call__(self, run: Run, node: Node, *, params: Any) -> tuple[str, Tensor]:
        """What to call the change, and the scores it leaves: (1, vocab)."""


@dataclass(frozen=True)
class Strategy:
    """One registered strategy. Its docstring is the text people read about it."""

    id: str
    order: int
    params: type
    decode: Decode
    # The GenerationConfig fields that make transformers prepare this kind of run.
    fixed: dict[str, Any]
    decoder_only: bool = False  # it cannot decode behind an encoder
    drafts: bool = False  # it has tokens judged that may be thrown away
    heads: bool = False  # the model's own draft heads write them
    foreign: bool = False  # it runs code that comes with its settings
    reshape: Reshape | None = None  # what it makes of the logits before the processors get them

    @property
    def description(self) -> str:
        """The docstring, first paragraph first."""
        return inspect.getdoc(self.decode) or ""

    @property
    def summary(self) -> str:
        """The docstring's first paragraph on one line."""
        return " ".join(self.description.split("\n\n")[0].split())

    @property
    def own_settings(self) -> dict[str, Setting]:
        """The settings only this strategy has."""
        return settings_of(self.params)

    @property
    def settings(self) -> dict[str, Setting]:
        """Every setting this strategy takes."""
        return {**SHARED, **self.own_settings}


_REGISTER: dict[str, Strategy] = {}


def strategy(
    id: str,
    *,
    order: int,
    params: type,
    decoder_only: bool = False,
    drafts: bool = False,
    heads: bool = False,
    foreign: bool = False,
    reshape: Reshape | None = None,
    **fixed: Any,
) -> Callable[[Decode], Decode]:
    """Register a decoding generator under ``id``; people are shown strategies by ``order``."""

    def register(decode: Decode) -> Decode:
        if id in _REGISTER:
            raise ValueError(f"two strategies are called {id!r}")
        _REGISTER[id] = Strategy(
            id, order, params, decode, fixed, decoder_only, drafts, heads, foreign, reshape
        )
        return decode

    return register


def registration(decode: Decode) -> Strategy:
    """What a decoding generator was registered as."""
    return next(found for found in _REGISTER.values() if found.decode is decode)


def registered() -> dict[str, Strategy]:
    """Every strategy by its id, simple ones first."""
    return {found.id: found for found in sorted(_REGISTER.values(), key=lambda s: s.order)}


def find(id: str) -> Strategy:
    """The strategy called ``id``, or a `PlaygroundError` that names a near one."""
    if id not in _REGISTER:
        known = ", ".join(registered())
        near = did_you_mean(str(id), _REGISTER)
        raise PlaygroundError(f"unknown strategy {id!r}{near or f'; there are {known}'}")
    return _REGISTER[id]
