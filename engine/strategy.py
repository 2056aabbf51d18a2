"""The contract of a decoding strategy, and the registry of all strategies.

A strategy is a generator that yields continuations of nodes and gets the evaluated nodes back. See
`engine.run` for what it can do in between.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from engine.errors import PlaygroundError, did_you_mean
from engine.run import Continuation, Node, Run, Subroutine
from engine.settings import SHARED, Setting, settings_of

__all__ = [
    "Continuation",
    "Decoding",
    "Strategy",
    "Subroutine",
    "find",
    "registered",
    "registration",
    "strategy",
]

Decoding = Subroutine[None]
Decode = Callable[[Run, Any], Decoding]


class Adjust(Protocol):
    """A strategy's own change of the logits at a node, before the processors."""

    def __call__(self, run: Run, node: Node, *, params: Any) -> tuple[str, Tensor]:
        """The name of the change, and the scores it leaves: (1, vocab)."""


@dataclass(frozen=True)
class Strategy:
    """One registered strategy. The docstring of its generator is its description on the page."""

    id: str
    params: type
    decode: Decode
    fixed: dict[str, Any]  # the GenerationConfig fields that it always has
    order: float = math.inf  # where it is listed
    decoder_only: bool = False  # it does not support encoder-decoder models
    drafts: bool = False  # it verifies drafted tokens, and rejects some
    heads: bool = False  # it drafts with the model's draft heads
    runs_user_code: bool = False  # it runs code that a setting contains
    adjust: Adjust | None = None  # changes the logits before the processors

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


_REGISTRY: dict[str, Strategy] = {}


def strategy(
    id: str,
    *,
    params: type,
    order: float = math.inf,
    decoder_only: bool = False,
    drafts: bool = False,
    heads: bool = False,
    runs_user_code: bool = False,
    adjust: Adjust | None = None,
    **fixed: Any,
) -> Callable[[Decode], Decode]:
    """Register a decoding generator under ``id``.

    Strategies are listed by ``order``, those without one at the end. Further arguments are fields
    of `GenerationConfig` that the strategy always has, such as ``do_sample=True``.
    """

    def register(decode: Decode) -> Decode:
        if id in _REGISTRY:
            raise ValueError(f"two strategies are called {id!r}")
        _REGISTRY[id] = Strategy(
            id, params, decode, fixed, order, decoder_only, drafts, heads, runs_user_code, adjust
        )
        return decode

    return register


def registration(decode: Decode) -> Strategy:
    """The strategy that a decoding generator is registered as."""
    return next(found for found in _REGISTRY.values() if found.decode is decode)


def registered() -> dict[str, Strategy]:
    """All strategies by id, in the order in which they are listed."""
    return {found.id: found for found in sorted(_REGISTRY.values(), key=lambda s: (s.order, s.id))}


def find(id: str) -> Strategy:
    """The strategy called ``id``; raises `PlaygroundError`, which suggests a similar id."""
    if id not in _REGISTRY:
        known = ", ".join(registered())
        near = did_you_mean(str(id), _REGISTRY)
        raise PlaygroundError(f"unknown strategy {id!r}{near or f'; there are {known}'}")
    return _REGISTRY[id]
