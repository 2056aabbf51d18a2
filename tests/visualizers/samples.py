"""Inputs of figures: hand-made chains, changed copies of real traces, results of the labs."""

from __future__ import annotations

import math
from collections.abc import Sequence as Many
from dataclasses import replace
from typing import Any, NamedTuple

from engine.trace import Candidate, Distribution, Sequence, Step, Stop, Token, Trace
from engine.watermark import detector
from playground import Playground
from tests.conftest import EVIL
from tests.tiny import tiny
from visualizers import best_path
from visualizers.speculative.heat_map import Cell, SettingsGrid
from visualizers.speculative.theory import DraftLengthTheory
from visualizers.watermark.attack import AttackCurve, AttackResult
from visualizers.watermark.bias import BiasedStep
from visualizers.watermark.cost import BiasCost, WatermarkCost
from visualizers.watermark.entropy import GreenListRun
from visualizers.watermark.power import DetectionPower, LengthNeeded, RateAtLength
from visualizers.watermark.roc import OperatingPoint, RocCurve, RocPoint
from visualizers.watermark.scan import ScannedText
from visualizers.watermark.scores import ScoreSamples


class Word(NamedTuple):
    """A token of a chain: its probabilities, and the other candidates recorded beside it."""

    id: int
    raw: float | None = 0.5
    final: float | None = 0.5
    rank: int | None = 1
    entropy: float = 1.0
    varentropy: float | None = None
    rivals: tuple[tuple[int, float, float], ...] = ()


def chain(strategy: str, words: Many[Word], before: Many[int] = (), **changes: Any) -> Trace:
    """A run that chose these tokens one after the other."""
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
    """The same text as a run that continues from its first tokens."""
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


def uncaptured(trace: Trace, at: int) -> Trace:
    """The same run with one step that was not captured."""
    nothing = {"raw": None, "final": None, "rank": None, "distribution": None}
    return _changed(trace, lambda step: replace(step, **nothing) if step.id == at else step)


def version_1(trace: Trace) -> Trace:
    """The run as a trace file of version 1 holds it."""

    def before(step: Step) -> Step:
        if step.distribution is None:
            return step
        given = replace(step.distribution, raw_varentropy=None, kept_after=(), cutoffs=())
        return replace(step, distribution=given)

    return _changed(trace, before)


def scored(trace: Trace, strategy: str = "greedy", **settings: Any) -> Trace:
    """The best text of a run, scored under a strategy."""
    plain = _changed(forked(trace, 0), lambda step: replace(step, event="given", notes={}))
    return replace(plain, strategy=strategy, settings=settings, prefix=trace.prefix)


def _changed(trace: Trace, change: Any) -> Trace:
    return replace(trace, steps=tuple(map(change, trace.steps)))


class BiasCandidate(NamedTuple):
    """A candidate of a step with a green list."""

    token: str
    before: float
    after: float
    green: bool
    chosen: bool


def inputs() -> dict[type, list[Any]]:
    """Examples of every input that figures declare besides traces, by type."""
    examples = [*_detections(), *_watermark_results(), *_speculative_results()]
    by_type: dict[type, list[Any]] = {}
    for example in examples:
        by_type.setdefault(type(example), []).append(example)
    return by_type


def _detections() -> list[Any]:
    """Detections of a green list and of SynthID, and one in which nothing could be scored."""
    model = Playground(tiny("llama")).model
    texts = [(EVIL + "abcabcabd" * 8, "lefthash"), (EVIL * 3, "synthid"), ("", "lefthash")]
    found = [
        detector.detect(
            model,
            text,
            scheme=scheme,
            **({"keys": [1, 2, 3], "ngram_len": 3} if scheme == "synthid" else {}),
        )
        for text, scheme in texts
    ]
    return [*found, *(ScannedText(one, detector.scan(one)) for one in found)]


def _watermark_results() -> list[Any]:
    candidates = (
        BiasCandidate(" the", 0.4, 0.2, False, False),
        BiasCandidate(EVIL, 0.3, 0.6, True, True),
    )
    run = chain("sample", [Word(1, entropy=0.3), Word(2, entropy=2.5), Word(3, entropy=4.5)])
    green = _changed(run, lambda step: replace(step, notes={"green": step.id != 1}))
    results = (AttackResult(0.0, 0, 5.0), AttackResult(0.5, 0, 2.0), AttackResult(0.5, 1, None))
    points = (RocPoint(5.0, 0.0, 0.5, 0.2, 0.8), RocPoint(1.0, 0.1, 1.0, 0.7, 1.0))
    return [
        BiasedStep(candidates),
        GreenListRun(green, 0.25, at=1),
        AttackCurve(EVIL, "share of tokens deleted", results, 6.0, 3.0),
        RocCurve(points, (OperatingPoint(0.1, 1.0, 0.7, 1.0, True),), 0.95, 10),
        ScoreSamples((-0.6, 0.0, 0.4), (4.0, 9.9), 4.0),
        DetectionPower(
            (0.0, 0.5, 0.5),
            (RateAtLength(2, 0.5, 0.2, 0.8),),
            (LengthNeeded(0.5, 2), LengthNeeded(0.9, None)),
            4.0,
        ),
        WatermarkCost(
            (
                BiasCost(0.0, 4, 9.0, 8.0, 11.0, 0.1, 0.0),
                BiasCost(2.0, 4, 12.0, 10.0, 15.0, 5.0, 1.0),
            )
        ),
    ]


def _speculative_results() -> list[Any]:
    cells = (Cell(1, 0.0, EVIL, 5.0, 1.1, 0.5), Cell(2, 0.4, "layer 8", None, None, None))
    return [
        DraftLengthTheory(EVIL, (1.0, 1.5, 1.7), (1.0, 1.2, 1.1), 2.5, 1.05),
        SettingsGrid(cells, "draft length", "threshold", 4.0),
        SettingsGrid((), "draft length", "threshold"),
    ]
