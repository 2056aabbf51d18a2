"""The feed: what the live view is told while runs go on, as lines of JSON.

A screen carries the lines since the last one, as a film carries what changed; a browser that was
too busy for a screen, or wants to know sooner, asks for the lines it has not read. Knows traces and
the words people read about them. Refuses to know the page.

Token text is untrusted: it travels inside JSON strings, and the page's script shows it as text.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from engine.trace import Candidate, Distribution, Step, Stop, Trace, Update
from playground import metrics

_LOOK = 0.01  # seconds between two looks whether there is news
_LISTED = 12  # candidates of a distribution that are sent
_NOTE = 80  # characters of a note that goes with a token
_CUT = 6  # but never without the best of those that were cut

_STOPS = {
    "end_token": "ended by the model",
    "stop_string": "stop text found",
    "length": "length reached",
    "time": "time is up",
    "cancelled": "stopped",
    "error": "failed",
}


class Feed:
    """The news of one board of columns as lines, and which of them the page has had."""

    def __init__(self) -> None:
        self.id = uuid.uuid4().hex
        self._lines: list[str] = []
        self._sent = 0
        self._runs: dict[int, _Encoder] = {}

    def say(self, words: str, *, error: bool = False) -> None:
        """Set the status line."""
        self._line({"say": words, "error": error})

    def column(self, key: int, head: Mapping[str, Any]) -> None:
        """Begin one more column."""
        self._runs[key] = _Encoder()
        self._line({"column": key, **head})

    def add(self, updates: Iterable[Update]) -> None:
        """Append updates, those of one run made one; a run is called by its column's key."""
        merged: dict[int, Update] = {}
        for update in updates:
            before = merged.get(update.run)
            merged[update.run] = _merge(before, update) if before else update
        # At once: who asks in between would get a few columns and ask again.
        self._lines += [
            _line({"run": key, **self._runs[key].update(merged[key])}) for key in sorted(merged)
        ]

    def pace(self, words: str) -> None:
        """Say whether the runs are playing, paused or over."""
        self._line({"pace": words})

    def _line(self, news: Mapping[str, Any]) -> None:
        self._lines.append(_line(news))

    def take(self, *, whole: bool = False) -> str:
        """The lines not taken yet, or all of them, below one that says where they start."""
        start = 0 if whole else self._sent
        self._sent = len(self._lines)
        return self._screen(start)

    async def since(self, start: int, seconds: float) -> str:
        """The lines from one on; where there are none, so many seconds are waited for some."""
        until = time.monotonic() + seconds
        while len(self._lines) <= start and time.monotonic() < until:
            await asyncio.sleep(_LOOK)
        # The next screen need not repeat them: who has not got them asks again.
        self._sent = max(self._sent, len(self._lines))
        return self._screen(start)

    def _screen(self, start: int) -> str:
        return "\n".join([json.dumps({"feed": self.id, "from": start}), *self._lines[start:]])


def _line(news: Mapping[str, Any]) -> str:
    line = json.dumps(news, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # Gradio warns about every value with a script tag in it; in JSON this is the same text.
    return line.replace("<", "\\u003c")


def _merge(first: Update, second: Update) -> Update:
    steps = {step.id: step for step in (*first.steps, *second.steps)}
    return Update(second.run, tuple(steps.values()), second.lead, second.trace or first.trace)


class _Encoder:
    """One run's updates as JSON values. Distributions are sent once and referred to."""

    def __init__(self) -> None:
        # id() -> index; the distribution is held so that its id stays its own
        self._seen: dict[int, tuple[int, Distribution]] = {}

    def update(self, update: Update) -> dict[str, Any]:
        news: list[dict[str, Any]] = []
        steps = [self._step(step, news) for step in update.steps]
        told = {"distributions": news, "steps": steps, "lead": update.lead}
        return {**told, "end": _end(update.trace)} if update.trace else told

    def _step(self, step: Step, news: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": step.id,
            "parent": step.parent,
            "tick": step.tick,
            "tokenId": step.token.id,
            "token": step.token.text,
            "text": step.text,
            "event": step.event,
            "raw": None if step.probability is None else _short(step.probability),
            "final": None if step.used is None else _short(step.used),
            "rank": step.rank,
            "at": None if step.distribution is None else self._place(step.distribution, news),
            "notes": {name: value for name, value in step.notes.items() if _short_enough(value)},
        }

    def _place(self, distribution: Distribution, news: list[dict[str, Any]]) -> int:
        key = id(distribution)
        if key not in self._seen:
            self._seen[key] = (len(self._seen), distribution)
            news.append(_distribution(distribution))
        return self._seen[key][0]


def _short_enough(value: Any) -> bool:
    """Whether a note goes with a token: long lists and tables are for the figures."""
    return isinstance(value, bool | int | float | str) or len(json.dumps(value)) <= _NOTE


def _distribution(distribution: Distribution) -> dict[str, Any]:
    kept = [candidate for candidate in distribution.candidates if candidate.final > 0][:_LISTED]
    cut = [candidate for candidate in distribution.candidates if candidate.final == 0]
    listed = kept + cut[: max(_LISTED - len(kept), _CUT)]
    return {
        "candidates": [_candidate(candidate) for candidate in listed],
        "processors": distribution.processors,
        "entropy": [_short(distribution.raw_entropy), _short(distribution.final_entropy)],
        "kept": distribution.kept,
        "keptAfter": distribution.kept_after,
        "cutoffs": [None if cutoff is None else _short(cutoff) for cutoff in distribution.cutoffs],
    }


def _candidate(candidate: Candidate) -> list[Any]:
    """Id, spelling, the model's probability, the one used, and those between, stage by stage."""
    between = candidate.stages[:-1]
    return [
        candidate.token.id,
        candidate.token.text,
        *map(_short, (candidate.raw, candidate.final, *between)),
    ]


def _short(number: float) -> float:
    """Four digits are more than a column shows."""
    return float(f"{number:.4g}")


def _end(trace: Trace) -> dict[str, Any]:
    """What a finished column says below its text."""
    return {
        "figures": metrics.headline(trace),
        "stop": stop_words(trace.stop),
        "rule": trace.stop.rule,
        "error": trace.error,
        "sequences": [
            {
                "lead": sequence.steps[-1] if sequence.steps else None,
                "score": None if sequence.score is None else f"{sequence.score:.4f}",
                "tokens": len(sequence.token_ids),
                "stop": stop_words(sequence.stop),
            }
            for sequence in trace.sequences
        ],
    }


def stop_words(stop: Stop) -> str:
    """The rule that ended something, for people; a rule of somebody's own keeps its name."""
    words = _STOPS.get(stop.rule, stop.rule.replace("_", " "))
    return f"{words}: {stop.detail}" if stop.detail else words
