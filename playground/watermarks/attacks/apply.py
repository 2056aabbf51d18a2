"""Attacks at work: one on a text, and how a score falls as an attack grows stronger.

Knows every attack there is and asks the detector what is left. A detector is given a text and not
the tokens somebody meant, so what an attack made is encoded again before it is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

from engine.errors import PlaygroundError, did_you_mean
from engine.watermark import detector
from playground.lab import Playground
from playground.requests import TextOrTokens
from playground.watermarks.attacks import characters as attack_letters
from playground.watermarks.attacks import rewriting as attack_writing
from playground.watermarks.attacks import tokens as attack_tokens
from playground.watermarks.attacks.registry import (
    Attack,
    OnTokens,
    Stop,
    Stopped,
    Target,
    registered,
)

__all__ = ["ATTACKS", "Attack", "Attacked", "Point", "Stopped", "attack", "curve"]

_MODULES = (attack_tokens, attack_letters, attack_writing)  # importing them registers their attacks
ATTACKS: dict[str, Attack] = registered()


class Attacked(NamedTuple):
    """A text after an attack: what people read, and the tokens a detector gets to see."""

    text: str
    ids: tuple[int, ...]


class Point(NamedTuple):
    """What one attack did to a score; None where too little was left to score."""

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
    """Attack a text, or the tokens it was written in; raises `Stopped` where ``stop`` was set.

    ``hear`` is told how many tokens the model has just written, where an attack lets it write.
    """
    found = _find(name)
    if not 0 <= strength <= found.highest:
        raise PlaygroundError(
            f"the strength of {name} is {strength!r}: {found.strength}; it must be a number of at"
            f" least 0 and at most {found.highest}"
        )
    if isinstance(text, str):
        target = Target(lab, text, tuple(lab.speller.ids(text)), stop, on_tokens)
    else:
        target = Target(lab, lab.speller.text(text), tuple(text), stop, on_tokens)
    target.check_stop()
    changed = found.change(target, strength, Random(seed))
    written = changed if isinstance(changed, str) else lab.speller.text(changed)
    return Attacked(written, tuple(lab.speller.ids(written)))


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
    """The score before and after an attack at every strength and from every seed, as each is known.

    ``detection`` are the options of `engine.watermark.detector.detect`. Setting ``stop``
    ends it within a tick, with the points so far.
    """
    ids = tuple(lab.speller.ids(text)) if isinstance(text, str) else tuple(text)
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
    """The z-score and the exact p-value, where there is anything to score."""
    found = detector.detect(lab.model, ids, **detection)
    return (found.z_score, found.exact_p) if found.tokens_scored else (None, None)


def _find(name: str) -> Attack:
    if name not in ATTACKS:
        near = did_you_mean(str(name), ATTACKS) or f"; there are {', '.join(ATTACKS)}"
        raise PlaygroundError(f"unknown attack {name!r}{near}")
    return ATTACKS[name]
