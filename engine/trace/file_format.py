"""The file format of a trace: compact JSON with a version number.

Token texts and distributions that several steps share are written once. A null stands for a number
that was not captured. The random numbers of draws are under a name of their own, ``noise``, by the
index of their distribution, so that programs that do not know them can still read the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from engine.errors import PlaygroundError
from engine.trace.types import Candidate, Distribution, Sequence, Step, Stop, Tick, Token

VERSION = 2
_READ = (1, 2)  # version 1 has no prefix and fewer numbers per distribution
_MOST = 2**64  # seeds are smaller, and all other numbers
_INVALID = (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError)

Value = TypeVar("Value")


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
        return json.loads(text, parse_constant=_refuse_constant)
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


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


# A file may come from anyone and contain anything: every value has its type afterwards.


def _fields(data: Mapping[str, Any]) -> dict[str, Any]:
    version = data.get("version")
    if version not in _READ:
        raise PlaygroundError(
            f"the trace has format version {version!r}; versions 1 to {VERSION} can be read"
        )
    tokens = {int(id): Token(int(id), _text(text)) for id, text in data["tokens"].items()}
    noise = data.get("noise", {})  # optional: earlier files have none
    distributions = [
        _distribution(row, noise.get(str(index)), tokens)
        for index, row in enumerate(data["distributions"])
    ]
    return {
        "strategy": _text(data["strategy"]),
        "settings": _mapping(data["settings"]),
        "seed": _optional(_whole, data["seed"]),
        "model": _text(data["model"]),
        "prompt": _text(data["prompt"]),
        "prompt_tokens": tuple(tokens[id] for id in data["prompt_tokens"]),
        "steps": tuple(
            _step(id, row, tokens, distributions) for id, row in enumerate(data["steps"])
        ),
        "ticks": tuple(_tick(*tick) for tick in data["ticks"]),
        "sequences": tuple(_sequence(item, len(data["steps"])) for item in data["sequences"]),
        "stop": _stop(*data["stop"]),
        "error": _optional(_text, data["error"]),
        "prefix": tuple(tokens[id] for id in data.get("prefix", ())),
    }


def _sequence(item: Mapping[str, Any], steps: int) -> Sequence:
    if not all(0 <= _whole(id) < steps for id in item["steps"]):
        raise ValueError("a sequence has a step that does not exist")
    return Sequence(
        token_ids=tuple(map(_whole, item["token_ids"])),
        text=_text(item["text"]),
        steps=tuple(item["steps"]),
        stop=_stop(*item["stop"]),
        score=_optional(_number, item["score"]),
    )


def _step(
    id: int, row: list[Any], tokens: Mapping[int, Token], distributions: list[Distribution]
) -> Step:
    parent, tick, token, text, event, raw, final, rank, distribution, notes = row
    if parent is not None and not 0 <= _whole(parent) < id:
        raise ValueError(f"step {id} has step {parent} for its parent")
    return Step(
        id=id,
        parent=parent,
        tick=_whole(tick),
        token=tokens[token],
        text=_text(text),
        event=_text(event),
        raw=_optional(_number, raw),
        final=_optional(_number, final),
        rank=_optional(_whole, rank),
        distribution=None if distribution is None else distributions[distribution],
        notes=_mapping(notes),
    )


def _distribution(
    row: list[Any], noise: list[float | None] | None, tokens: Mapping[int, Token]
) -> Distribution:
    processors, raw_entropy, final_entropy, kept, candidates, *further = row
    varentropy, kept_after, cutoffs = further or (None, (), ())
    return Distribution(
        candidates=tuple(
            Candidate(
                tokens[id],
                _optional(_number, raw),
                tuple(map(_number, stages)),
                _number(final),
                _optional(_number, random),
            )
            for (id, raw, *stages, final), random in zip(
                candidates, noise or [None] * len(candidates), strict=True
            )
        ),
        processors=tuple(map(_text, processors)),
        raw_entropy=_optional(_number, raw_entropy),
        final_entropy=_number(final_entropy),
        kept=_whole(kept),
        raw_varentropy=_optional(_number, varentropy),
        kept_after=tuple(map(_whole, kept_after)),
        cutoffs=tuple(_optional(_number, cutoff) for cutoff in cutoffs),
    )


def _tick(forward_passes: Any, nodes: Any, ms: Any, *further: Any) -> Tick:
    for number in further:
        _optional(_number, number)
    return Tick(_whole(forward_passes), _whole(nodes), _number(ms), *further)


def _stop(rule: Any, detail: Any = "") -> Stop:
    return Stop(_text(rule), _text(detail))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    value.encode()  # raises for half of a surrogate pair, which cannot be written
    return value


def _whole(value: Any) -> int:
    if type(value) is not int or abs(value) >= _MOST:
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) < _MOST:
        raise TypeError(f"{value!r} is not a number")
    return cast(float, value)  # whole numbers stay as they are


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not an object")
    return value


def _optional(read: Callable[[Any], Value], value: Any) -> Value | None:
    return None if value is None else read(value)
