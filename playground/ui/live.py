"""The live view: what the columns are told while runs go on, and the component that hears it.

A feed is a list of JSON lines. A screen carries those since the last one, as a film carries what
changed, and now and then all of them: a browser that was too busy for a screen catches up. (All of
them every time would be simpler, but Gradio goes over the whole value some eight times a change.)
Knows traces and the words people read about them. Refuses to know the page around it.

Token text is untrusted. It travels inside JSON strings and reaches the page as ``textContent``
alone; the template is constant, because Gradio evaluates templates as scripts.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from engine.trace import Candidate, Distribution, Step, Stop, Trace, Update
from playground.report import drafting

_HERE = Path(__file__).parent

_LISTED = 10  # candidates a card lists at most
_CUT = 3  # but never without the best of those that were cut

_STOPS = {
    "end_token": "ended by the model",
    "stop_string": "stop text found",
    "length": "length reached",
    "time": "time is up",
    "cancelled": "stopped by you",
    "error": "failed",
}


def component() -> gr.HTML:
    """The live view: its value is what a feed's `take` gave.

    ``begun`` fires when it hears of a feed for the first time, ``over`` at the feed's end, and
    ``ended`` with it, for those who are drawn with the cards.
    """
    return gr.HTML(
        value="",
        html_template=_file("live.html"),
        css_template=_file("live.css"),
        js_on_load=_file("live.js") + _file("candidates.js"),
        apply_default_css=False,
        elem_id="live",
    )


def _file(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


class Feed:
    """The news of one comparison."""

    def __init__(self) -> None:
        self._id = uuid.uuid4().hex
        self._lines: list[str] = []
        self._sent = 0
        self._runs: list[_Encoder] = []

    def say(self, words: str, *, error: bool = False) -> None:
        """Set the status line."""
        self._line({"say": words, "error": error})

    def columns(self, heads: Sequence[tuple[str, str]]) -> None:
        """Begin new columns, each headed by a name and its settings."""
        self._runs = [_Encoder() for _ in heads]
        self._line({"columns": [{"name": name, "settings": settings} for name, settings in heads]})

    def add(self, updates: Iterable[Update]) -> None:
        """Append updates, those of one run made one."""
        merged: dict[int, Update] = {}
        for update in updates:
            before = merged.get(update.run)
            merged[update.run] = _merge(before, update) if before else update
        for run in sorted(merged):
            self._line({"run": run, **self._runs[run].update(merged[run])})

    def _line(self, news: Mapping[str, Any]) -> None:
        line = json.dumps(news, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        # Gradio warns about every value with a script tag in it; in JSON this is the same text.
        self._lines.append(line.replace("<", "\\u003c"))

    def over(self) -> None:
        """Nothing follows."""
        self._line({"over": True})

    def take(self, *, whole: bool = False) -> str:
        """The lines not taken yet, or all of them, below one that says where they start."""
        start = 0 if whole else self._sent
        self._sent = len(self._lines)
        return "\n".join([json.dumps({"feed": self._id, "from": start}), *self._lines[start:]])


def _merge(first: Update, second: Update) -> Update:
    steps = {step.id: step for step in (*first.steps, *second.steps)}
    return Update(second.run, tuple(steps.values()), second.lead, second.trace or first.trace)


class _Encoder:
    """One run's updates as JSON values. Distributions are sent once and referred to."""

    def __init__(self) -> None:
        # id() -> index; the distribution is held so that its id stays its own
        self._seen: dict[int, tuple[int, Distribution]] = {}
        self._told: set[int] = set()

    def update(self, update: Update) -> dict[str, Any]:
        news: list[dict[str, Any]] = []
        steps = [self._step(step, news) for step in update.steps if self._matters(step)]
        told = {"distributions": news, "steps": steps, "lead": update.lead}
        return {**told, "end": _end(update.trace)} if update.trace else told

    def _matters(self, step: Step) -> bool:
        """Candidates that never had a place are drawn in the tree, not in the text."""
        if step.event == "pruned" and step.id not in self._told:
            return False
        self._told.add(step.id)
        return True

    def _step(self, step: Step, news: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": step.id,
            "parent": step.parent,
            "tokenId": step.token.id,
            "token": step.token.text,
            "text": step.text,
            "event": step.event,
            "raw": None if step.probability is None else _short(step.probability),
            "final": None if step.used is None else _short(step.used),
            "rank": step.rank,
            "at": None if step.distribution is None else self._place(step.distribution, news),
        }

    def _place(self, distribution: Distribution, news: list[dict[str, Any]]) -> int:
        key = id(distribution)
        if key not in self._seen:
            self._seen[key] = (len(self._seen), distribution)
            news.append(_distribution(distribution))
        return self._seen[key][0]


def _distribution(distribution: Distribution) -> dict[str, Any]:
    kept = [candidate for candidate in distribution.candidates if candidate.final > 0][:_LISTED]
    cut = [candidate for candidate in distribution.candidates if candidate.final == 0]
    listed = kept + cut[: max(_LISTED - len(kept), _CUT)]
    return {
        "candidates": [_candidate(candidate) for candidate in listed],
        "processors": distribution.processors,
        "entropy": [_short(distribution.raw_entropy), _short(distribution.final_entropy)],
        "kept": distribution.kept,
    }


def _candidate(candidate: Candidate) -> list[Any]:
    return [
        candidate.token.id,
        candidate.token.text,
        _short(candidate.raw),
        _short(candidate.final),
    ]


def _short(number: float) -> float:
    """Four digits are more than a column shows."""
    return float(f"{number:.4g}")


def _end(trace: Trace) -> dict[str, Any]:
    """What a finished column says below its text."""
    tokens = len(trace.sequences[0].token_ids) if trace.sequences else 0
    rate = tokens / trace.seconds if trace.seconds else 0.0
    figures = {
        "tokens": str(tokens),
        "seconds": f"{trace.seconds:.2f}",
        "tokens/s": f"{rate:.1f}",
        "forward passes": str(trace.forward_passes),
        **drafting(trace),
    }
    return {
        "figures": list(figures.items()),
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
