"""A race as the lanes show it: every token with what became of it, and when.

Knows the news of a race. Refuses to know components. Text of the model leaves as JSON and reaches
the page as ``textContent`` alone.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from engine.trace import Step
from engine.trace.rounds import CLOSINGS, rounds
from playground.speculation.drafters import Drafter
from playground.speculation.race import Lane, Race, RaceUpdate

EMPTY = (
    "Press Race: every drafter ticked above writes the same prompt on, one after the other, and "
    "plain decoding does too. Drafted tokens appear, those the model agrees with stay, the others "
    "are struck out. When all have run, replay them together on one clock."
)
_ALONE = (
    "Each ran alone, so that its time is its own; the replay shows them on one clock, every token "
    "at the moment it was there. Reading the prompt is not counted, all had to; what else this "
    "machine had to do is."
)
_LOST = ("rejected", "ignored")
_STRUCK = 8  # lost tokens of one round that are shown


@dataclass
class _Seen:
    """What is known of one lane so far; times are in ms since its start."""

    drafter: Drafter
    state: str = "waiting"
    steps: dict[int, Step] = field(default_factory=dict)
    came: dict[int, float] = field(default_factory=dict)
    judged: dict[int, float] = field(default_factory=dict)
    ms: float = 0.0
    lane: Lane | None = None

    def hear(self, steps: Iterable[Step], ms: float) -> None:
        self.state, self.ms = "running", ms
        for step in steps:
            self.steps[step.id] = step
            self.came.setdefault(step.id, ms)
            if not _pending(step):
                self.judged[step.id] = ms

    def end(self, lane: Lane) -> None:
        """Take the times of the trace in place of those that were heard."""
        self.lane = lane
        if lane.error is not None or lane.trace is None:
            self.state = "failed"
            return
        self.state = "stopped" if lane.trace.stop.rule == "cancelled" else "done"
        self.ms = 1000 * lane.seconds
        measured = _measured(lane)
        first = min(measured, key=lambda id: measured[id], default=None)
        # What was heard counts from the call, what was measured from the prompt's end.
        early = 0.0 if first is None else self.judged.get(first, 0.0) - measured[first]
        self.judged = {id: measured.get(id, self.ms) for id in self.steps}
        self.came = {
            id: max(0.0, min(came - early, self.judged[id])) for id, came in self.came.items()
        }

    @property
    def tokens(self) -> list[list[Any]]:
        """Every token in reading order: of a round what was kept, what was lost, what closed it.

        Of a tree dozens are lost in a round: the last entry then stands for many, and says so.
        """
        told: list[list[Any]] = []
        for (_, lost), steps in groupby(sorted(self.steps.values(), key=_reading), _group):
            entries = [self._entry(step) for step in steps]
            told += entries[:_STRUCK] if lost else entries
            if lost and (more := len(entries) - _STRUCK) > 0:
                told.append([f" +{more} ", *entries[_STRUCK][1:], more])
        return told

    def _entry(self, step: Step) -> list[Any]:
        """A token's text, its fate, when it came and when it was judged, and its round."""
        fate = _fate(step)
        # A struck-out token breaks no line.
        text = step.token.text.replace("\n", "⏎") if fate in _LOST else step.text
        judged = round(self.judged[step.id], 1) if step.id in self.judged else None
        return [text, fate, round(self.came[step.id], 1), judged, _round(step)]


def _measured(lane: Lane) -> dict[int, float]:
    """When each step was decided, by the run's own clock."""
    assert lane.trace is not None
    if not lane.trace.sequences:
        return {}
    ids = lane.trace.sequences[0].steps
    told = dict(zip(ids, lane.arrivals, strict=True))
    for one in rounds(lane.trace):
        own = [told[each.step] for each in one.drafted if each.step in told]
        closing = [told[one.closing.step]] if one.closing and one.closing.step in told else []
        if own or closing:
            told |= dict.fromkeys((each.step for each in one.drafted), max([*own, *closing]))
    return told


def _pending(step: Step) -> bool:
    """Whether nobody has judged the token yet."""
    return step.event == "drafted" and "verdict" not in step.notes


def _fate(step: Step) -> str:
    return "drafted" if _pending(step) else str(step.notes.get("verdict", "chosen"))


def _round(step: Step) -> int:
    """The pass of the model that gave the token; plain decoding has one for each."""
    return int(step.notes.get("round", step.id + 1))


def _reading(step: Step) -> tuple[int, int, int]:
    fate = _fate(step)
    group = 1 if fate in _LOST else 2 if fate in CLOSINGS else 0
    return _round(step), group, step.id


def _group(step: Step) -> tuple[int, bool]:
    return _round(step), _fate(step) in _LOST


class Screen:
    """The value of the lanes while a race goes on."""

    def __init__(self, drafters: Sequence[Drafter], asked: int) -> None:
        self._id = uuid.uuid4().hex
        self._asked = asked
        self._seen = [_Seen(drafter) for drafter in drafters]
        self._race: Race | None = None

    def hear(self, news: RaceUpdate) -> None:
        """Take in what happened."""
        seen = self._seen[news.place]
        if news.update is not None:
            seen.hear(news.update.steps, 1000 * news.seconds)
        elif news.lane is not None:
            seen.end(news.lane)
        elif news.result is not None:
            self._race = news.result
        else:
            seen.state = "running"

    def told(self) -> str:
        """What the lanes show now. Tokens come with the lane that runs, and once more at the end,
        in case a screen was lost on its way."""
        over = self._race is not None
        running = max((place for place, one in enumerate(self._seen) if one.steps), default=0)
        lanes = [
            self._lane(place, tokens=over or place >= running - 1)
            for place in range(len(self._seen))
        ]
        say, kind = (_ALONE, "over") if over else (self._doing(), "running")
        return _json({"race": self._id, "say": say, "kind": kind, "over": over, "lanes": lanes})

    def _doing(self) -> str:
        done = sum(one.lane is not None for one in self._seen)
        now = next((one for one in self._seen if one.state == "running"), None)
        name = now.drafter.name if now else "the next one"
        return f"{done} of {len(self._seen)} have run. Now: {name}."

    def _lane(self, place: int, *, tokens: bool) -> dict[str, Any]:
        seen = self._seen[place]
        accounting = seen.lane.accounting if seen.lane else None
        told: dict[str, Any] = {
            "id": place,
            "name": seen.drafter.name,
            "about": seen.drafter.about,
            "state": seen.state,
            "asked": self._asked,
            "ms": round(seen.ms, 1),
            "error": seen.lane.error if seen.lane else None,
            "passes": accounting.target_passes if accounting else None,
            # Plain decoding takes its first token from the prompt's pass; a draft needs another.
            "prompt": 0 if seen.drafter.plain else 1,
            "rate": seen.lane.tokens_per_second if seen.lane else None,
            **self._rank(seen),
        }
        return {**told, "tokens": seen.tokens} if tokens else told

    def _rank(self, seen: _Seen) -> dict[str, Any]:
        """Its place at the finish, and how many times as fast as plain decoding it was."""
        if self._race is None or seen.lane is None or seen.state != "done":
            return {"place": None, "times": None}
        rates = [
            one.lane.tokens_per_second or 0.0
            for one in self._seen
            if one.lane and one.state == "done"
        ]
        own = seen.lane.tokens_per_second or 0.0
        times = None if seen.drafter.plain else self._race.speed_up(seen.lane)
        return {
            "place": 1 + sum(rate > own for rate in rates),
            "times": f"{times:.2f}× plain" if times else None,
        }


def nothing(words: str = EMPTY) -> str:
    """The lanes while nobody has run."""
    return _json({"say": words, "kind": "empty"})


def _json(told: dict[str, Any]) -> str:
    # Gradio warns about every value with a script tag in it; in JSON this is the same text.
    return json.dumps(told, ensure_ascii=False).replace("<", "\\u003c")
