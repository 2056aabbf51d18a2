"""Applies attacks to a text, and measures the detector's score against the attack's strength.

A detector sees a text, not the original tokens, so the attacked text is encoded again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

from engine.errors import PlaygroundError, did_you_mean
from engine.watermark import detector
from playground.lab import Playground
from playground.requests import TextOrTokens
from playground.stopping import Stop, Stopped, check_stop
from playground.watermarks.attacks import characters, rewriting, tokens
from playground.watermarks.attacks.registry import (
    Attack,
    OnTokens,
    Target,
    registered,
)

__all__ = ["ATTACKS", "Attack", "Attacked", "Point", "attack", "curve"]

_MODULES = (tokens, characters, rewriting)  # importing them registers their attacks
ATTACKS: dict[str, Attack] = registered()


class Attacked(NamedTuple):
    """An attacked text, and its tokens as the detector sees them."""

    text: str
    ids: tuple[int, ...]


class Point(NamedTuple):
    """The score before and after an attack; None if no token could be scored."""

    attack: str
    strength: float
    seed: int
    tokens: int  # of the attacked text
    before: float | None
    after: float | None
    exact_p: float | None


def attack(
    lab: Playground,
    text: TextOrTokens,
    name: str,
    strength: float,
    seed: int = 0,
    *,
    stop: Stop | None = None,
    on_tokens: OnTokens | None = None,
) -> Attacked:
    """Attack a text, or its original tokens; raises `Stopped` if ``stop`` is set.

    ``on_tokens`` is called with the number of new tokens while the model generates text.
    """
    found = _find(name)
    if not 0 <= strength <= found.highest:
        raise PlaygroundError(
            f"the strength of {name} is {strength!r}: {found.strength}; it must be a number of at"
            f" least 0 and at most {found.highest}"
        )
    if isinstance(text, str):
        target = Target(lab, text, tuple(lab.token_decoder.ids(text)), stop, on_tokens)
    else:
        target = Target(lab, lab.token_decoder.text(text), tuple(text), stop, on_tokens)
    check_stop(stop)
    changed = found.change(target, strength, Random(seed))
    result = changed if isinstance(changed, str) else lab.token_decoder.text(changed)
    return Attacked(result, tuple(lab.token_decoder.ids(result)))


def curve(
    lab: Playground,
    text: TextOrTokens,
    name: str,
    strengths: Sequence[float],
    seeds: Sequence[int] = (0,),
    *,
    stop: Stop | None = None,
    on_tokens: OnTokens | None = None,
    **detection: Any,
) -> Iterator[Point]:
    """Yield the score before and after an attack for every strength and seed.

    ``detection`` are options of `engine.watermark.detector.detect`. Setting ``stop`` ends it within
    a tick.
    """
    ids = tuple(lab.token_decoder.ids(text)) if isinstance(text, str) else tuple(text)
    before, _ = _scored(lab, ids, detection)
    for strength in strengths:
        for seed in seeds:
            try:
                attacked = attack(lab, ids, name, strength, seed, stop=stop, on_tokens=on_tokens)
            except Stopped:
                return
            after = _scored(lab, attacked.ids, detection)
            yield Point(name, strength, seed, len(attacked.ids), before, *after)


def _scored(
    lab: Playground, ids: Sequence[int], detection: dict[str, Any]
) -> tuple[float, float] | tuple[None, None]:
    """The z-score and the exact p-value; None if no token could be scored."""
    found = detector.detect(lab.model, ids, **detection)
    return (found.z_score, found.exact_p) if found.tokens_scored else (None, None)


def _find(name: str) -> Attack:
    if name not in ATTACKS:
        near = did_you_mean(str(name), ATTACKS) or f"; there are {', '.join(ATTACKS)}"
        raise PlaygroundError(f"unknown attack {name!r}{near}")
    return ATTACKS[name]
