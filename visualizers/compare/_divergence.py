"""Where texts part: which token each run took there, and what its rivals had been given.

Knows the texts of runs from the same prompt as one trie. Refuses to draw it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from engine.trace import Candidate, Step, Token, Trace
from visualizers._shared.lines import best_path
from visualizers._shared.style import labels


class Text(NamedTuple):
    """A run's tokens after the prompt; those that stood there before the run have no step."""

    place: int
    label: str
    origin: tuple[str, tuple[int, ...]]  # texts of another model or prompt have nothing to share
    tokens: tuple[Token, ...]
    steps: tuple[Step | None, ...]


class Side(NamedTuple):
    """What one of two runs did where they parted; ``token`` is None if its text had ended.

    ``other_raw`` and ``other_final`` are the probabilities its own distribution there gave the
    other's token: None where that is not among the recorded candidates.
    """

    run: int
    token: Token | None
    raw: float | None
    final: float | None
    other_raw: float | None
    other_final: float | None


class Parting(NamedTuple):
    """Two runs and the place (from 0) of the first token they do not share; None: equal texts.

    ``gap`` is by how much the model preferred the first one's token, in nats of log-probability.
    The text before is the same, so it is one distribution, whichever of them recorded it.
    """

    at: int | None
    first: Side
    second: Side
    gap: float | None


class Stretch(NamedTuple):
    """Tokens that the same runs share, on one row; it branches off ``parent``'s row."""

    runs: tuple[int, ...]
    row: int
    parent: int | None
    start: int
    tokens: tuple[Token, ...]
    last: bool  # no run goes on after it


def texts_of(traces: Sequence[Trace]) -> tuple[Text, ...]:
    """The best text of every trace that took a step."""
    return tuple(
        _text(place, label, trace)
        for place, (label, trace) in enumerate(zip(labels(traces), traces, strict=True))
        if trace.steps
    )


def _text(place: int, label: str, trace: Trace) -> Text:
    path = best_path(trace)
    return Text(
        place,
        label,
        (trace.model, tuple(token.id for token in trace.prompt_tokens)),
        (*trace.prefix, *(step.token for step in path)),
        (*(None for _ in trace.prefix), *path),
    )


def partings(texts: Sequence[Text]) -> tuple[Parting, ...]:
    """Every pair of runs from the same prompt, in the order of the comparison."""
    return tuple(
        _parting(*pair) for pair in combinations(texts, 2) if pair[0].origin == pair[1].origin
    )


def _parting(first: Text, second: Text) -> Parting:
    shorter = min(len(first.tokens), len(second.tokens))
    differ = (at for at in range(shorter) if first.tokens[at].id != second.tokens[at].id)
    at = next(differ, shorter)
    if at == len(first.tokens) == len(second.tokens):
        nothing = (None, None, None, None, None)
        return Parting(None, Side(first.place, *nothing), Side(second.place, *nothing), None)
    sides = _side(first, second, at), _side(second, first, at)
    return Parting(at, *sides, _gap(first, second, at))


def _side(own: Text, other: Text, at: int) -> Side:
    step = own.steps[at] if at < len(own.steps) else None
    rival = _candidate(step, other.tokens[at]) if at < len(other.tokens) else None
    return Side(
        own.place,
        own.tokens[at] if at < len(own.tokens) else None,
        step.probability if step else None,
        step.used if step else None,
        rival.raw if rival else None,
        rival.final if rival else None,
    )


def _candidate(step: Step | None, token: Token) -> Candidate | None:
    given = step.distribution.candidates if step and step.distribution else ()
    return next((item for item in given if item.token.id == token.id), None)


def _gap(first: Text, second: Text, at: int) -> float | None:
    if at >= min(len(first.tokens), len(second.tokens)):
        return None
    steps = [first.steps[at], second.steps[at]]
    preferred, rival = (_logarithm(text.tokens[at], steps) for text in (first, second))
    return None if preferred is None or rival is None else preferred - rival


def _logarithm(token: Token, steps: Sequence[Step | None]) -> float | None:
    """The model's log-probability of a token, from the first step that recorded it."""
    for step in steps:
        if step and step.token.id == token.id and step.raw is not None:
            return step.raw
        if (found := _candidate(step, token)) and found.raw:
            return math.log(found.raw)
    return None


def stretches(texts: Sequence[Text]) -> tuple[Stretch, ...]:
    """The texts as tries, one per prompt, with a row for every text that differs."""
    made: list[Stretch] = []
    row = 0
    for origin in dict.fromkeys(text.origin for text in texts):
        row = _grow([text for text in texts if text.origin == origin], 0, row, None, made)
    return tuple(made)


def _grow(
    group: Sequence[Text], start: int, row: int, parent: int | None, made: list[Stretch]
) -> int:
    """Adds what the group shares from ``start`` on, then its branches; the next free row."""
    end = start
    while len({_id(text, end) for text in group}) == 1 and _id(group[0], end) is not None:
        end += 1
    branches: dict[int | None, list[Text]] = {}
    for text in group:
        branches.setdefault(_id(text, end), []).append(text)
    last = len(branches) == 1
    runs = tuple(text.place for text in group)
    made.append(Stretch(runs, row, parent, start, group[0].tokens[start:end], last))
    if last:
        return row + 1
    below = row
    for branch in branches.values():
        below = _grow(branch, end, below, row, made)
    return below


def _id(text: Text, at: int) -> int | None:
    return text.tokens[at].id if at < len(text.tokens) else None
