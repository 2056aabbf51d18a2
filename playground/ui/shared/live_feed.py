"""The live feed: runs as lines of JSON, which the live view reads while they are written.

A feed keeps its lines. A page that was reloaded or lost its connection reads on from any of them.

Token text is untrusted: it travels inside JSON strings, and scripts insert it as text content.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from typing import Any

from engine.trace import Candidate, Distribution, Step, Stop, Trace, Update
from playground import metrics

_CANDIDATES = 12  # sent of a distribution
_CUT_CANDIDATES = 6  # sent at least of those that were cut, if there are that many
_NOTE_CHARACTERS = 80  # longer notes are not sent: they are for the figures

_STOP_RULES = {
    "end_token": "end-of-text token",
    "stop_string": "stop string found",
    "length": "length limit",
    "time": "time limit",
    "cancelled": "stopped",
    "error": "failed",
}


class Feed:
    """The lines of one comparison. Threads append to them while the server's event loop reads."""

    def __init__(self) -> None:
        self.id = uuid.uuid4().hex
        self._lines: list[str] = []
        self._runs: dict[int, _Encoder] = {}
        self._over = False
        self._readers: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def set_status(self, text: str, *, error: bool = False) -> None:
        """Set the status line."""
        self._append({"status": text, "error": error})

    def add_column(self, key: int, head: Mapping[str, Any]) -> None:
        """Start a column."""
        self._runs[key] = _Encoder()
        self._append({"column": key, **head})

    def add_updates(self, updates: Iterable[Update]) -> None:
        """Append updates, merged by run; a run's number is its column's key."""
        merged: dict[int, Update] = {}
        for update in updates:
            before = merged.get(update.run)
            merged[update.run] = _merge(before, update) if before else update
        # Together: a reader would otherwise get some of the columns only.
        self._append(
            *({"run": key, **self._runs[key].update(merged[key])} for key in sorted(merged))
        )

    def set_state(self, state: str) -> None:
        """Set the state of the runs: "playing", "paused" or "over"."""
        self._lines.append(_line({"state": state}))
        self._over = state == "over"  # after the line: a reader that sees this has the last line
        self._wake()

    def _append(self, *data: Mapping[str, Any]) -> None:
        self._lines += map(_line, data)
        self._wake()

    def _wake(self) -> None:
        for loop, arrived in tuple(self._readers):
            loop.call_soon_threadsafe(arrived.set)

    async def read(self, start: int, patience: float) -> AsyncIterator[list[str]]:
        """Yield the lines from ``start`` on as they arrive, until the runs are over.

        An empty list is yielded if nothing arrives for ``patience`` seconds.
        """
        arrived = asyncio.Event()
        reader = (asyncio.get_running_loop(), arrived)
        self._readers.add(reader)
        try:
            while True:
                arrived.clear()
                over = self._over
                lines = self._lines[start:]
                if not lines and over:
                    return
                if not lines:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(arrived.wait(), patience)
                    lines = self._lines[start:]
                start += len(lines)
                yield lines
        finally:
            self._readers.discard(reader)


def _line(data: Mapping[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _merge(first: Update, second: Update) -> Update:
    steps = {step.id: step for step in (*first.steps, *second.steps)}
    return Update(second.run, tuple(steps.values()), second.lead, second.trace or first.trace)


class _Encoder:
    """Encodes the updates of one run. Each distribution is sent once and then referred to."""

    def __init__(self) -> None:
        # id() -> index; the distribution is kept alive so that its id stays unique
        self._sent: dict[int, tuple[int, Distribution]] = {}

    def update(self, update: Update) -> dict[str, Any]:
        new: list[dict[str, Any]] = []
        steps = [self._step(step, new) for step in update.steps]
        encoded = {"distributions": new, "steps": steps, "lead": update.lead}
        return {**encoded, "end": _end(update.trace)} if update.trace else encoded

    def _step(self, step: Step, new: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": step.id,
            "parent": step.parent,
            "tick": step.tick,
            "tokenId": step.token.id,
            "token": step.token.text,
            "text": step.text,
            "event": step.event,
            "raw": _rounded(step.probability),
            "final": _rounded(step.used),
            "rank": step.rank,
            "at": None if step.distribution is None else self._index(step.distribution, new),
            "noise": _noise(step),
            "notes": {name: value for name, value in step.notes.items() if _is_short(value)},
        }

    def _index(self, distribution: Distribution, new: list[dict[str, Any]]) -> int:
        key = id(distribution)
        if key not in self._sent:
            self._sent[key] = (len(self._sent), distribution)
            new.append(_distribution(distribution))
        return self._sent[key][0]


def _is_short(value: Any) -> bool:
    return isinstance(value, bool | int | float | str) or len(json.dumps(value)) <= _NOTE_CHARACTERS


def _distribution(distribution: Distribution) -> dict[str, Any]:
    candidates = distribution.candidates
    kept = [candidate for candidate in candidates if candidate.final > 0][:_CANDIDATES]
    cut = [candidate for candidate in candidates if candidate.final == 0]
    listed = kept + cut[: max(_CANDIDATES - len(kept), _CUT_CANDIDATES)]
    noise = [_rounded(candidate.noise) for candidate in listed]
    return {
        "candidates": [_candidate(candidate) for candidate in listed],
        "processors": distribution.processors,
        "entropy": [_rounded(distribution.raw_entropy), _rounded(distribution.final_entropy)],
        "kept": distribution.kept,
        "keptAfter": distribution.kept_after,
        "cutoffs": [_rounded(cutoff) for cutoff in distribution.cutoffs],
        "noise": noise if any(number is not None for number in noise) else [],
    }


def _candidate(candidate: Candidate) -> list[Any]:
    """Id, text, the model's probability, the final one, and those after each processor."""
    between = candidate.stages[:-1]
    return [
        candidate.token.id,
        candidate.token.text,
        *map(_rounded, (candidate.raw, candidate.final, *between)),
    ]


def _noise(step: Step) -> float | None:
    """The random number of the step's own token: it may not be one of the candidates sent."""
    candidates = step.distribution.candidates if step.distribution else ()
    own = (one.noise for one in candidates if one.token.id == step.token.id)
    return _rounded(next(own, None))


def _rounded(number: float | None) -> float | None:
    """Four digits, more than the page shows; None where nothing was captured."""
    return None if number is None else float(f"{number:.4g}")


def _end(trace: Trace) -> dict[str, Any]:
    """What a finished column shows below its text."""
    return {
        "figures": metrics.headline(trace),
        "stop": stop_text(trace.stop),
        "rule": trace.stop.rule,
        "error": trace.error,
        "sequences": [
            {
                "lead": sequence.steps[-1] if sequence.steps else None,
                "score": None if sequence.score is None else f"{sequence.score:.4f}",
                "tokens": len(sequence.token_ids),
                "stop": stop_text(sequence.stop),
            }
            for sequence in trace.sequences
        ],
    }


def stop_text(stop: Stop) -> str:
    """The rule that ended a run, in words; a custom rule keeps its name."""
    rule = _STOP_RULES.get(stop.rule, stop.rule.replace("_", " "))
    return f"{rule}: {stop.detail}" if stop.detail else rule
