"""The file format of a trace: compact JSON with a version number.

Token texts and distributions that several steps share are written once. A null stands for a number
that was not captured. The random numbers of draws are under a name of their own, ``noise``, by the
index of their distribution, so that programs that do not know them can still read the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from engine.errors import PlaygroundError
from engine.trace.types import Candidate, Distribution, Sequence, Step, Stop, Tick, Token

VERSION = 2
_READ = (1, 2)  # version 1 has no prefix and fewer numbers per distribution
_INVALID = (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError)


def encode(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A trace's fields as JSON values."""
    return _Encoder().trace(fields)


def decode(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the trace that `encode` wrote; raises `PlaygroundError` for anything else."""
    try:
        return _fields(data)
    except _INVALID as error:
        raise PlaygroundError(f"not a valid trace file ({error!r})") from error


def parse(text: str) -> Any:
    """The JSON values of a file with traces."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlaygroundError(f"not a valid trace file ({error!r})") from error


class _Encoder:
    """Turns a trace into JSON values."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._distributions: dict[int, int] = {}  # id() of a distribution -> its index
        self._rows: list[list[Any]] = []
        self._noise: dict[str, list[float | None]] = {}  # by the index of a distribution

    def trace(self, trace: Mapping[str, Any]) -> dict[str, Any]:
        prompt = [self._token(token) for token in trace["prompt_tokens"]]
        prefix = [self._token(token) for token in trace["prefix"]]
        steps = [self._step(step) for step in trace["steps"]]
        return {
            "version": VERSION,
            "strategy": trace["strategy"],
            "settings": dict(trace["settings"]),
            "seed": trace["seed"],
            "model": trace["model"],
            "prompt": trace["prompt"],
            "prompt_tokens": prompt,
            "prefix": prefix,
            "tokens": {str(id): text for id, text in self._texts.items()},
            "distributions": self._rows,
            "noise": self._noise,
            "steps": steps,
            "ticks": [list(vars(tick).values()) for tick in trace["ticks"]],
            "sequences": [
                {
                    "token_ids": sequence.token_ids,
                    "text": sequence.text,
                    "steps": sequence.steps,
                    "stop": [sequence.stop.rule, sequence.stop.detail],
                    "score": sequence.score,
                }
                for sequence in trace["sequences"]
            ],
            "stop": [trace["stop"].rule, trace["stop"].detail],
            "error": trace["error"],
        }

    def _token(self, token: Token) -> int:
        self._texts[token.id] = token.text
        return token.id

    def _step(self, step: Step) -> list[Any]:
        return [
            step.parent,
            step.tick,
            self._token(step.token),
            step.text,
            step.event,
            step.raw,
            step.final,
            step.rank,
            None if step.distribution is None else self._distribution(step.distribution),
            dict(step.notes),
        ]

    def _distribution(self, distribution: Distribution) -> int:
        index = self._distributions.get(id(distribution))
        if index is None:
            index = self._distributions[id(distribution)] = len(self._rows)
            noise = [candidate.noise for candidate in distribution.candidates]
            if any(number is not None for number in noise):
                self._noise[str(index)] = noise
            self._rows.append(
                [
                    distribution.processors,
                    distribution.raw_entropy,
                    distribution.final_entropy,
                    distribution.kept,
                    [
                        [self._token(c.token), c.raw, *c.stages, c.final]
                        for c in distribution.candidates
                    ],
                    distribution.raw_varentropy,
                    distribution.kept_after,
                    distribution.cutoffs,
                ]
            )
        return index


def _fields(data: Mapping[str, Any]) -> dict[str, Any]:
    version = data.get("version")
    if version not in _READ:
        raise PlaygroundError(
            f"the trace has format version {version!r}; versions 1 to {VERSION} can be read"
        )
    tokens = {int(id): Token(int(id), text) for id, text in data["tokens"].items()}
    noise = data.get("noise", {})  # optional: earlier files have none
    distributions = [
        _distribution(row, noise.get(str(index)), tokens)
        for index, row in enumerate(data["distributions"])
    ]
    return {
        "strategy": data["strategy"],
        "settings": data["settings"],
        "seed": data["seed"],
        "model": data["model"],
        "prompt": data["prompt"],
        "prompt_tokens": tuple(tokens[id] for id in data["prompt_tokens"]),
        "steps": tuple(
            _step(id, row, tokens, distributions) for id, row in enumerate(data["steps"])
        ),
        "ticks": tuple(Tick(*tick) for tick in data["ticks"]),
        "sequences": tuple(
            Sequence(
                token_ids=tuple(item["token_ids"]),
                text=item["text"],
                steps=tuple(item["steps"]),
                stop=Stop(*item["stop"]),
                score=item["score"],
            )
            for item in data["sequences"]
        ),
        "stop": Stop(*data["stop"]),
        "error": data["error"],
        "prefix": tuple(tokens[id] for id in data.get("prefix", ())),
    }


def _step(
    id: int, row: list[Any], tokens: Mapping[int, Token], distributions: list[Distribution]
) -> Step:
    parent, tick, token, text, event, raw, final, rank, distribution, notes = row
    if parent is not None and not 0 <= parent < id:
        raise ValueError(f"step {id} has step {parent} for its parent")
    return Step(
        id=id,
        parent=parent,
        tick=tick,
        token=tokens[token],
        text=text,
        event=event,
        raw=raw,
        final=final,
        rank=rank,
        distribution=None if distribution is None else distributions[distribution],
        notes=notes,
    )


def _distribution(
    row: list[Any], noise: list[float | None] | None, tokens: Mapping[int, Token]
) -> Distribution:
    processors, raw_entropy, final_entropy, kept, candidates, *further = row
    varentropy, kept_after, cutoffs = further or (None, (), ())
    return Distribution(
        candidates=tuple(
            Candidate(tokens[id], raw, tuple(stages), final, random)
            for (id, raw, *stages, final), random in zip(
                candidates, noise or [None] * len(candidates), strict=True
            )
        ),
        processors=tuple(processors),
        raw_entropy=raw_entropy,
        final_entropy=final_entropy,
        kept=kept,
        raw_varentropy=varentropy,
        kept_after=tuple(kept_after),
        cutoffs=tuple(cutoffs),
    )
