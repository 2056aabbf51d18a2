"""Writes one run's trace: steps as they are told, the ledger of ticks, the sequences returned.

Knows the trace and how tokens are spelled. Refuses to know tensors, models and strategies.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from engine.trace import Sequence, Step, Stop, Tick, Token, Trace
from engine.trace.distributions import Observed
from engine.trace.lazy_tuple import LazyTuple
from engine.trace.token_text import Speller


@dataclass(frozen=True)
class Heading:
    """What a trace says before its first step."""

    strategy: str
    settings: Mapping[str, Any]
    seed: int
    model: str
    prompt: str
    prompt_tokens: tuple[Token, ...]
    prefix: tuple[Token, ...] = ()


class Entry(NamedTuple):
    """A step that has its number, and what is known of it before anything was measured."""

    id: int
    parent: int | None
    tick: int
    token: int
    event: str
    notes: Mapping[str, Any]


class _Written:
    """A step that was told of."""

    def __init__(
        self, entry: Entry, text: str, seen: Callable[[], Observed] | None, speller: Speller
    ) -> None:
        self.entry = entry
        self._text = text
        self._seen = seen
        self._speller = speller

    def with_event(self, event: str) -> _Written:
        """The same once something more has happened to it."""
        return _Written(self.entry._replace(event=event), self._text, self._seen, self._speller)

    @cached_property
    def step(self) -> Step:
        """The step itself."""
        entry, seen = self.entry, self._seen() if self._seen else None
        return Step(
            id=entry.id,
            parent=entry.parent,
            tick=entry.tick,
            token=self._speller.token(entry.token),
            text=self._text,
            event=entry.event,
            raw=seen.raw if seen else None,
            final=seen.final if seen else None,
            rank=seen.rank if seen else None,
            distribution=seen.distribution if seen else None,
            notes=dict(entry.notes),
        )


class Recorder:
    """The trace of a run while it is being written."""

    def __init__(self, heading: Heading, speller: Speller, *, fresh: bool) -> None:
        self._heading = heading
        self._speller = speller
        # Nothing stands before the first token: an encoder-decoder's text, from its beginning.
        self._fresh = fresh and not heading.prefix
        self._begun = self._unfinished(heading.prefix)
        self._steps: list[_Written] = []
        self._at: dict[tuple[int, int | None, int], int] = {}  # (tree, parent step, token) -> step
        self._unspelled: dict[int | None, tuple[int, ...]] = {None: self._begun}
        self._changed: dict[int, None] = {}
        self._tips: list[int] = []
        self._ticks: list[Tick] = []
        self._cost = (0, 0, 0)
        self._clock = time.perf_counter()
        self._ending: tuple[tuple[Sequence, ...], Stop, str | None] | None = None

    def enter(
        self,
        parent: int | None,
        token: int,
        event: str,
        notes: Mapping[str, Any],
        tree: int = 0,
    ) -> Entry:
        """Give a token's step its number, to be written later; a place told of before keeps its
        own."""
        id = self._at.setdefault((tree, parent, token), len(self._at))
        self._changed[id] = None
        return Entry(id, parent, len(self._ticks), token, event, notes)

    def write(
        self,
        entry: Entry,
        seen: Callable[[], Observed] | None = None,
        further: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Tell of a step that was entered, with further notes; in the order they were entered. What
        was seen there is asked for when somebody looks at the step."""
        fresh = self._fresh and entry.parent is None
        pending = self._unspelled[entry.parent]
        text, self._unspelled[entry.id] = self._speller.add(pending, entry.token, fresh=fresh)
        if further:
            entry = entry._replace(notes={**entry.notes, **further})
        self._put(_Written(entry, text, seen, self._speller))

    def step_at(self, parent: int | None, token: int, tree: int = 0) -> int | None:
        """The step told of at a place, if there is one."""
        return self._at.get((tree, parent, token))

    def show(self, tips: Iterable[int]) -> None:
        """Note which texts to show now, by their last steps, the leading one first."""
        self._tips = list(tips)

    def charge(self, forward_passes: int, nodes: int, draft_passes: int = 0) -> None:
        """Add to the cost of the tick under way."""
        passes, before, drafts = self._cost
        self._cost = (passes + forward_passes, before + nodes, drafts + draft_passes)

    def settle(self, *, waited: bool = False) -> None:
        """Close the tick under way; one that was only waited through goes into the next."""
        if waited and not self._changed and self._ending is None:
            return
        now = time.perf_counter()
        passes, nodes, drafts = self._cost
        ms = round((now - self._clock) * 1000, 3)
        self._ticks.append(Tick(passes, nodes, ms, drafts))
        self._cost, self._clock = (0, 0, 0), now

    def wait(self, seconds: float) -> None:
        """Leave time out of the tick under way: somebody held the run."""
        self._clock += seconds

    def finish(self, ends: Iterable[tuple[int, float | None, Stop]], stop: Stop) -> None:
        """End with sequences, best first: last step, score, and the rule that ended each."""
        ends = list(ends)
        for tip in (self._steps[tip] for tip, _, _ in ends):
            if tip.entry.event != "given":
                self._put(tip.with_event("returned"))
        self._tips = [tip for tip, _, _ in ends]
        self._ending = (tuple(self._sequence(*end) for end in ends), stop, None)

    def break_off(self, stop: Stop, error: str | None = None) -> None:
        """End where the run is; the texts shown last are what it returns, less unjudged drafts.

        What was entered and cannot be written any more is left out.
        """
        self._changed = {id: None for id in self._changed if id < len(self._steps)}
        tips = map(self._judged, (tip for tip in self._tips if tip < len(self._steps)))
        shown = tuple(self._sequence(tip, None, stop) for tip in tips if tip is not None)
        self._ending = (shown, stop, error)

    def texts(self) -> list[list[int]]:
        """The new tokens of every text that may be returned: those shown, the leading one first,
        then those that have ended."""
        ended = (id for id, step in enumerate(self._steps) if step.entry.event == "finished")
        return [[entry.token for entry in self._path(tip)] for tip in (*self._tips, *ended)]

    def news(self) -> tuple[LazyTuple[Step], int | None]:
        """The steps new or changed since the last call, and the last step of the leading text."""
        changed = [self._steps[id] for id in self._changed]
        self._changed.clear()
        return _steps(changed), self._tips[0] if self._tips else None

    @property
    def trace(self) -> Trace | None:
        """The whole record, once the run has ended."""
        if self._ending is None:
            return None
        sequences, stop, error = self._ending
        return Trace(
            **vars(self._heading),
            steps=_steps(self._steps.copy()),
            ticks=tuple(self._ticks),
            sequences=sequences,
            stop=stop,
            error=error,
        )

    def _put(self, step: _Written) -> None:
        id = step.entry.id
        if id == len(self._steps):
            self._steps.append(step)
        else:
            self._steps[id] = step
        self._changed[id] = None

    def _unfinished(self, prefix: Iterable[Token]) -> tuple[int, ...]:
        """The tokens at a prefix's end that wait for the rest of a character."""
        waiting: tuple[int, ...] = ()
        for token in prefix:
            _, waiting = self._speller.add(waiting, token.id)
        return waiting

    def _sequence(self, tip: int, score: float | None, stop: Stop) -> Sequence:
        path = self._path(tip)
        ids = tuple(entry.token for entry in path)
        return Sequence(
            token_ids=ids,
            text=self._speller.text((*self._begun, *ids), fresh=self._fresh),
            steps=tuple(entry.id for entry in path),
            stop=stop,
            score=score,
        )

    def _judged(self, tip: int) -> int | None:
        """The last step on the way to this one that is more than a draft."""
        at: int | None = tip
        while at is not None and self._steps[at].entry.event == "drafted":
            at = self._steps[at].entry.parent
        return at

    def _path(self, tip: int) -> list[Entry]:
        """The steps from the prompt to a step, first token first."""
        path = []
        at: int | None = tip
        while at is not None:
            path.append(self._steps[at].entry)
            at = path[-1].parent
        return path[::-1]


def _steps(written: list[_Written]) -> LazyTuple[Step]:
    return LazyTuple(lambda: [each.step for each in written], len(written))
