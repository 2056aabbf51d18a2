"""The lanes of a race as data for their script: each token, what became of it, and when.

Model text travels as JSON and reaches the page as text content only.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from engine.trace import Step
from engine.trace.rounds import CLOSINGS, rounds
from playground.speculation.drafters import Drafter
from playground.speculation.race import Lane, Race, RaceUpdate
from playground.ui.shared.html import json_value

_EMPTY = (
    "Press Race: plain decoding and each selected drafter continue the prompt, one after the "
    "other. Drafted tokens appear as they come; accepted ones stay, rejected ones are struck out. "
    "After the last run, replay all lanes together on one clock."
)
_EXPLANATION = (
    "Each drafter ran alone; the replay shows all lanes on one clock. Times leave out the prompt "
    "but include other load on this machine."
)
_DISCARDED = ("rejected", "ignored")
_MAX_DISCARDED = 8  # discarded tokens of one round that are shown


@dataclass
class _LaneState:
    """One lane so far; times are in milliseconds since its start."""

    drafter: Drafter
    state: str = "waiting"
    steps: dict[int, Step] = field(default_factory=dict)
    drafted: dict[int, float] = field(default_factory=dict)  # when each token was written
    verified: dict[int, float] = field(default_factory=dict)  # when its fate was decided
    ms: float = 0.0
    lane: Lane | None = None

    def add(self, steps: Iterable[Step], ms: float) -> None:
        self.state, self.ms = "running", ms
        for step in steps:
            self.steps[step.id] = step
            self.drafted.setdefault(step.id, ms)
            if not _pending(step):
                self.verified[step.id] = ms

    def end(self, lane: Lane) -> None:
        """Replace the times at which updates arrived by those in the trace."""
        self.lane = lane
        if lane.error is not None or lane.trace is None:
            self.state = "failed"
            return
        self.state = "stopped" if lane.trace.stop.rule == "cancelled" else "done"
        self.ms = 1000 * lane.seconds
        measured = _measured(lane)
        first = min(measured, key=lambda id: measured[id], default=None)
        # Updates are timed from the call, the trace from the end of the prompt.
        offset = 0.0 if first is None else self.verified.get(first, 0.0) - measured[first]
        self.verified = {id: measured.get(id, self.ms) for id in self.steps}
        self.drafted = {
            id: max(0.0, min(ms - offset, self.verified[id])) for id, ms in self.drafted.items()
        }

    @property
    def tokens(self) -> list[list[Any]]:
        """All tokens in reading order: of each round the accepted, the discarded, the last one.

        A tree discards dozens of tokens in a round: one entry then stands for the rest.
        """
        tokens: list[list[Any]] = []
        for (_, discarded), steps in groupby(sorted(self.steps.values(), key=_order), _group):
            entries = [self._entry(step) for step in steps]
            tokens += entries[:_MAX_DISCARDED] if discarded else entries
            if discarded and (more := len(entries) - _MAX_DISCARDED) > 0:
                tokens.append([f" +{more} ", *entries[_MAX_DISCARDED][1:], more])
        return tokens

    def _entry(self, step: Step) -> list[Any]:
        """A token's text, its fate, when it was drafted and verified, and its round."""
        fate = _fate(step)
        # A token that is struck out must not break the line.
        text = step.token.text.replace("\n", "⏎") if fate in _DISCARDED else step.text
        verified = round(self.verified[step.id], 1) if step.id in self.verified else None
        return [text, fate, round(self.drafted[step.id], 1), verified, _round(step)]


def _measured(lane: Lane) -> dict[int, float]:
    """When each step was decided, according to the trace."""
    assert lane.trace is not None
    if not lane.trace.sequences:
        return {}
    ids = lane.trace.sequences[0].steps
    times = dict(zip(ids, lane.arrivals, strict=True))
    for one in rounds(lane.trace):
        own = [times[each.step] for each in one.drafted if each.step in times]
        closing = [times[one.closing.step]] if one.closing and one.closing.step in times else []
        if own or closing:
            times |= dict.fromkeys((each.step for each in one.drafted), max([*own, *closing]))
    return times


def _pending(step: Step) -> bool:
    """Whether the token is not verified yet."""
    return step.event == "drafted" and "verdict" not in step.notes


def _fate(step: Step) -> str:
    return "drafted" if _pending(step) else str(step.notes.get("verdict", "chosen"))


def _round(step: Step) -> int:
    """The token's round; in plain decoding each token is a round."""
    return int(step.notes.get("round", step.id + 1))


def _order(step: Step) -> tuple[int, int, int]:
    fate = _fate(step)
    group = 1 if fate in _DISCARDED else 2 if fate in CLOSINGS else 0
    return _round(step), group, step.id


def _group(step: Step) -> tuple[int, bool]:
    return _round(step), _fate(step) in _DISCARDED


class LaneView:
    """The value of the lanes component during a race."""

    def __init__(self, all_drafters: Sequence[Drafter], tokens: int) -> None:
        self._id = uuid.uuid4().hex
        self._tokens = tokens
        self._lanes = [_LaneState(drafter) for drafter in all_drafters]
        self._race: Race | None = None

    def add(self, news: RaceUpdate) -> None:
        """Add what happened in a lane."""
        state = self._lanes[news.place]
        if news.update is not None:
            state.add(news.update.steps, 1000 * news.seconds)
        elif news.lane is not None:
            state.end(news.lane)
        elif news.result is not None:
            self._race = news.result
        else:
            state.state = "running"

    def value(self) -> str:
        """The component's value. It holds the tokens of the current and the previous lane; at the
        end those of all lanes, in case the browser missed a value."""
        over = self._race is not None
        running = max((place for place, one in enumerate(self._lanes) if one.steps), default=0)
        lanes = [
            self._lane(place, tokens=over or place >= running - 1)
            for place in range(len(self._lanes))
        ]
        status, kind = (_EXPLANATION, "over") if over else (self._status(), "running")
        return json_value(
            {"race": self._id, "status": status, "kind": kind, "over": over, "lanes": lanes}
        )

    def _status(self) -> str:
        done = sum(one.lane is not None for one in self._lanes)
        now = next((one for one in self._lanes if one.state == "running"), None)
        name = now.drafter.name if now else "the next drafter"
        return f"{done} of {len(self._lanes)} runs done. Now: {name}."

    def _lane(self, place: int, *, tokens: bool) -> dict[str, Any]:
        state = self._lanes[place]
        accounting = state.lane.accounting if state.lane else None
        data: dict[str, Any] = {
            "id": place,
            "name": state.drafter.name,
            "about": state.drafter.about,
            "state": state.state,
            "length": self._tokens,
            "ms": round(state.ms, 1),
            "error": state.lane.error if state.lane else None,
            "passes": accounting.target_passes if accounting else None,
            # Plain decoding gets its first token from the prompt's pass; a draft needs another.
            "prompt": 0 if state.drafter.plain else 1,
            "rate": state.lane.tokens_per_second if state.lane else None,
            **self._rank(state),
        }
        return {**data, "tokens": state.tokens} if tokens else data

    def _rank(self, state: _LaneState) -> dict[str, Any]:
        """Its place, and its speed-up over plain decoding."""
        if self._race is None or state.lane is None or state.state != "done":
            return {"place": None, "times": None}
        rates = [
            one.lane.tokens_per_second or 0.0
            for one in self._lanes
            if one.lane and one.state == "done"
        ]
        own = state.lane.tokens_per_second or 0.0
        times = None if state.drafter.plain else self._race.speed_up(state.lane)
        return {
            "place": 1 + sum(rate > own for rate in rates),
            "times": f"{times:.2f}× plain" if times else None,
        }


def empty_lanes() -> str:
    """The value before the first race."""
    return json_value({"status": _EMPTY, "kind": "empty"})
