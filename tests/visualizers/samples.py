"""Traces to draw: chains with numbers made by hand, and what can have happened to a real one."""

from __future__ import annotations

import math
from collections.abc import Sequence as Many
from dataclasses import replace
from typing import Any, NamedTuple

from engine.trace import Candidate, Distribution, Sequence, Step, Stop, Token, Trace
from visualizers import best_path


class Word(NamedTuple):
    """A token of a chain: its probabilities, and the rivals that were recorded beside it."""

    id: int
    raw: float | None = 0.5
    final: float | None = 0.5
    rank: int | None = 1
    entropy: float = 1.0
    varentropy: float | None = None
    rivals: tuple[tuple[int, float, float], ...] = ()


def chain(strategy: str, words: Many[Word], before: Many[int] = (), **changes: Any) -> Trace:
    """A run that took these tokens one after the other."""
    steps = tuple(_step(place, word) for place, word in enumerate(words))
    ids = tuple(word.id for word in words)
    stop = Stop("length")
    text = "".join(step.text for step in steps)
    blank: dict[str, Any] = {"settings": {}, "seed": 0, "model": "toy", "prompt": "hi"}
    return Trace(
        strategy=strategy,
        prompt_tokens=(Token(1, "hi"),),
        steps=steps,
        ticks=(),
        sequences=(Sequence(ids, text, tuple(range(len(steps))), stop),),
        stop=stop,
        prefix=tuple(Token(id, f" w{id}") for id in before),
        **{**blank, **changes},
    )


def _step(place: int, word: Word) -> Step:
    token = Token(word.id, f" w{word.id}")
    raw, final = (None if p is None else math.log(p) for p in (word.raw, word.final))
    given = None if word.raw is None else _distribution(token, word)
    parent = place - 1 if place else None
    return Step(place, parent, place, token, token.text, "chosen", raw, final, word.rank, given, {})


def _distribution(token: Token, word: Word) -> Distribution:
    candidates = [Candidate(token, word.raw or 0, (), word.final or 0)]
    candidates += [Candidate(Token(id, f" w{id}"), raw, (), end) for id, raw, end in word.rivals]
    return Distribution(
        tuple(candidates), (), word.entropy, word.entropy, 9, raw_varentropy=word.varentropy
    )


def forked(trace: Trace, at: int) -> Trace:
    """The same text as a run that went on from its first tokens."""
    path = best_path(trace)
    before, after = path[:at], path[at:]
    steps = tuple(
        replace(step, id=place, parent=place - 1 if place else None)
        for place, step in enumerate(after)
    )
    kept = replace(
        trace.sequences[0],
        token_ids=tuple(step.token.id for step in after),
        steps=tuple(range(len(after))),
    )
    tokens = tuple(step.token for step in before)
    return replace(trace, steps=steps, sequences=(kept,), prefix=tokens)


def unseen(trace: Trace, at: int) -> Trace:
    """The same run, one of whose steps nobody saw."""
    nothing = {"raw": None, "final": None, "rank": None, "distribution": None}
    return _changed(trace, lambda step: replace(step, **nothing) if step.id == at else step)


def old(trace: Trace) -> Trace:
    """The run as a trace of version 1 has it."""

    def before(step: Step) -> Step:
        if step.distribution is None:
            return step
        given = replace(step.distribution, raw_varentropy=None, kept_after=(), cutoffs=())
        return replace(step, distribution=given)

    return _changed(trace, before)


def scored(trace: Trace, strategy: str = "greedy", **settings: Any) -> Trace:
    """The best text of a run as one that was given to a strategy."""
    plain = _changed(forked(trace, 0), lambda step: replace(step, event="given", notes={}))
    return replace(plain, strategy=strategy, settings=settings, prefix=trace.prefix)


def _changed(trace: Trace, change: Any) -> Trace:
    return replace(trace, steps=tuple(map(change, trace.steps)))
