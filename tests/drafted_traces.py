"""Traces of speculative runs: real ones of tiny models with every drafter, and hand-made ones."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from engine.trace import Distribution, Sequence, Step, Stop, Tick, Token, Trace
from playground import Playground
from tests.draft_models import deep, draft, readable
from tests.tiny import tiny

PROMPT = "abcabcabdabcab"
GIVEN = Distribution((), (), raw_entropy=1.5, final_entropy=1.0, kept=9)
SURE = {"assistant_confidence_threshold": 0.0, "num_assistant_tokens": 3}

DRAFTERS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "good": (lambda: tiny("llama"), "speculative", {"assistant_model": "good", **SURE}),
    "bad": (lambda: tiny("llama"), "speculative", {"assistant_model": "bad", **SURE}),
    "itself": (lambda: tiny("llama"), "speculative", SURE),
    "lookup": (lambda: tiny("llama"), "prompt_lookup", {"prompt_lookup_num_tokens": 4}),
    "exit": (lambda: deep(3), "early_exit", {"assistant_early_exit": 2, **SURE}),
    "other": (
        lambda: readable(),
        "universal_speculative",
        {"assistant_model": "reversed", **SURE},
    ),
}


def choice(name: str, **further: Any) -> tuple[str, dict[str, Any]]:
    """Return a drafter as an argument of `Playground.compare`."""
    _, strategy, settings = DRAFTERS[name]
    known = {
        "good": draft("llama", "good"),
        "bad": draft("llama", "bad"),
        "reversed": readable(True),
    }
    values = {**settings, **further}
    if "assistant_model" in values:
        values["assistant_model"] = known[values["assistant_model"]]
    return strategy, values


@cache
def drafted(name: str, do_sample: bool = False, tokens: int = 24) -> Trace:
    """Return the trace of a run with a drafter."""
    model, _, _ = DRAFTERS[name]
    run = choice(name, do_sample=do_sample)
    [trace] = Playground(model()).compare(PROMPT, [run], max_new_tokens=tokens, seed=3)
    assert trace.error is None
    return trace


@cache
def plain(name: str, tokens: int = 24) -> Trace:
    """Return the trace of the same model without a drafter."""
    model, _, _ = DRAFTERS[name]
    [trace] = Playground(model()).compare(PROMPT, ["greedy"], max_new_tokens=tokens)
    return trace


def step(id: int, parent: int | None, tick: int, text: str, **notes: Any) -> Step:
    """Return a step of a round with these notes."""
    token = Token(100 + id, text)
    return Step(id, parent, tick, token, text, "chosen", -0.5, -0.5, 1, GIVEN, notes)


def tree() -> Trace:
    """Three rounds: a plain one, a draft tree with one accepted branch, and a rejected chain.

    0 a ─┬─ 1 b ─┬─ 3 d ── 6 f (bonus) ── 7 g (rejected) ── 8 h (ignored)
         │       └─ 4 e (rejected)     └─ 9 i (resampled)
         └─ 2 c (rejected) ── 5 x (ignored)
    """
    steps = [
        step(0, None, 0, "a", round=1, verdict="chosen"),
        step(1, 0, 1, "b", round=2, verdict="accepted", p=0.9, q=0.5, depth=1, draft_ms=4.0),
        step(2, 0, 1, "c", round=2, verdict="rejected", p=0.1, q=0.3, depth=1),
        step(3, 1, 1, "d", round=2, verdict="accepted", p=0.6, q=0.4, depth=2),
        step(4, 1, 1, "e", round=2, verdict="rejected", p=0.2, q=0.4, depth=2),
        step(5, 2, 1, "x", round=2, verdict="ignored", p=0.2, q=0.4, depth=2),
        step(6, 3, 1, "f", round=2, verdict="bonus"),
        step(7, 6, 3, "g", round=3, verdict="rejected", p=0.2, q=0.8, draw=0.5, draft_ms=3.0),
        step(8, 7, 3, "h", round=3, verdict="ignored", p=0.2, q=0.8),
        step(9, 6, 3, "i", round=3, verdict="resampled"),
    ]
    path = (0, 1, 3, 6, 9)
    ids, text = tuple(steps[at].token.id for at in path), "".join(steps[at].text for at in path)
    return Trace(
        strategy="medusa",
        settings={},
        seed=0,
        model="toy",
        prompt="p",
        prompt_tokens=(Token(1, "p"),),
        steps=tuple(steps),
        ticks=(
            Tick(1, 1, 50.0, decided_ms=46.0),
            Tick(1, 6, 43.0, decided_ms=40.0),
            Tick(0, 2, 10.0, 1),
            Tick(1, 3, 30.0, decided_ms=30.0),
        ),
        sequences=(Sequence(ids, text, path, Stop("length")),),
        stop=Stop("length"),
    )


def cut_short(trace: Trace) -> Trace:
    """Return the trace cancelled before its last round was verified."""
    last = max(one.notes.get("round", 0) for one in trace.steps)
    kept = [one for one in trace.steps if one.notes.get("round") != last]
    drafts = [
        replace(one, event="drafted", notes={"round": last, "q": 0.5})
        for one in trace.steps
        if one.notes.get("round") == last and one.notes["verdict"] in ("rejected", "ignored")
    ]
    [text] = trace.sequences
    shorter = tuple(id for id in text.steps if trace.steps[id].notes.get("round") != last)
    ids = tuple(trace.steps[id].token.id for id in shorter)
    returned = Sequence(ids, "", shorter, Stop("cancelled"))
    return replace(trace, steps=(*kept, *drafts), sequences=(returned,), stop=Stop("cancelled"))
