"""Writes the trace of one run: its steps, what each tick cost, and the returned sequences."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

from engine.trace import Sequence, Step, Stop, Tick, Token, Trace
from engine.trace.distributions import Observation
from engine.trace.lazy_tuple import LazyTuple
from engine.trace.token_text import TokenDecoder


@dataclass(frozen=True)
class TraceHeader:
    """The fields of a trace that are known before its first step."""

    strategy: str
    settings: Mapping[str, Any]
    seed: int
    model: str
    prompt: str
    prompt_tokens: tuple[Token, ...]
    prefix: tuple[Token, ...] = ()


class Entry(NamedTuple):
    """A step with its id, before its distribution is computed."""

    id: int
    parent: int | None
    tick: int
    token: int
    event: str
    notes: Mapping[str, Any]


class _WrittenStep:
    """A step in the trace; its distribution is computed on first access."""

    def __init__(
        self,
        entry: Entry,
        text: str,
        observe: Callable[[], Observation] | None,
        decoder: TokenDecoder,
    ) -> None:
        self.entry = entry
        self._text = text
        self._observe = observe
        self._decoder = decoder

    def with_event(self, event: str) -> _WrittenStep:
        """The same step after a further event."""
        return _WrittenStep(
            self.entry._replace(event=event), self._text, self._observe, self._decoder
        )

    @cached_property
    def step(self) -> Step:
        """The step with its distribution."""
        entry, seen = self.entry, self._observe() if self._observe else None
        return Step(
            id=entry.id,
            parent=entry.parent,
            tick=entry.tick,
            token=self._decoder.token(entry.token),
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

    def __init__(self, header: TraceHeader, decoder: TokenDecoder, *, at_start: bool) -> None:
        """``at_start``: no text precedes the first token, as in an encoder-decoder."""
        self._header = header
        self._decoder = decoder
        self._at_start = at_start and not header.prefix
        self._incomplete = self._incomplete_tail(header.prefix)
        self._steps: list[_WrittenStep] = []
        self._at: dict[tuple[int, int | None, int], int] = {}  # (tree, parent step, token) -> step
        # The tokens of an incomplete character at the end of each step.
        self._undecoded: dict[int | None, tuple[int, ...]] = {None: self._incomplete}
        self._changed: dict[int, None] = {}
        self._tips: list[int] = []
        self._ticks: list[Tick] = []
        self._cost = (0, 0, 0)
        self._part = (0.0, 0)  # this run's part of the nodes of shared passes, and all of them
        self._prompt_nodes = 0
        self._clock = time.perf_counter()
        self._decided: float | None = None  # when the first token of the tick was picked
        self._ending: tuple[tuple[Sequence, ...], Stop, str | None] | None = None

    def add_step(
        self,
        parent: int | None,
        token: int,
        event: str,
        notes: Mapping[str, Any],
        tree: int = 0,
    ) -> Entry:
        """Give a token's step its id; a step that exists already keeps it. `write` must follow."""
        if self._decided is None:
            self._decided = time.perf_counter()
        id = self._at.setdefault((tree, parent, token), len(self._at))
        self._changed[id] = None
        return Entry(id, parent, len(self._ticks), token, event, notes)

    def write(
        self,
        entry: Entry,
        observe: Callable[[], Observation] | None = None,
        further: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Write a step that was added, in the order of `add_step`, with further notes. ``observe``
        gives what was observed there, when the step is first read."""
        at_start = self._at_start and entry.parent is None
        pending = self._undecoded[entry.parent]
        text, self._undecoded[entry.id] = self._decoder.add(pending, entry.token, at_start=at_start)
        if further:
            entry = entry._replace(notes={**entry.notes, **further})
        self._put(_WrittenStep(entry, text, observe, self._decoder))

    def step_at(self, parent: int | None, token: int, tree: int = 0) -> int | None:
        """The step of a token after a parent step, if there is one."""
        return self._at.get((tree, parent, token))

    def show(self, tips: Iterable[int]) -> None:
        """Set the texts to show now, by their last steps, the leading one first."""
        self._tips = list(tips)

    def charge(self, forward_passes: int, nodes: int, draft_passes: int = 0) -> None:
        """Add to the cost of the current tick."""
        passes, before, drafts = self._cost
        self._cost = (passes + forward_passes, before + nodes, drafts + draft_passes)

    def charge_prompt(self, nodes: int) -> None:
        """Add the model's pass over the prompt to the cost of the current tick."""
        self.charge(1, nodes)
        self._prompt_nodes += nodes

    def add_part(self, own: float, of_all: int) -> None:
        """Add this run's part of the nodes of a pass that several runs share."""
        part, every = self._part
        self._part = (part + own, every + of_all)

    def end_tick(self, *, waited: bool = False) -> None:
        """End the current tick; one in which the run only waited is merged into the next."""
        if waited and not self._changed and self._ending is None:
            return
        now = time.perf_counter()
        passes, nodes, drafts = self._cost
        ms = round((now - self._clock) * 1000, 3)
        decided = self._decided and round((self._decided - self._clock) * 1000, 3)
        own, every = self._part
        shared = (self._prompt_nodes, every, round(own, 3))
        self._ticks.append(Tick(passes, nodes, ms, drafts, decided, *shared))
        self._cost, self._clock, self._decided = (0, 0, 0), now, None
        self._part, self._prompt_nodes = (0.0, 0), 0

    def exclude_time(self, seconds: float) -> None:
        """Exclude a pause from the current tick."""
        self._clock += seconds

    def finish(self, ends: Iterable[tuple[int, float | None, Stop]], stop: Stop) -> None:
        """End with sequences, best first: last step, score, and the rule that ended each."""
        ends = list(ends)
        for tip in (self._steps[tip] for tip, _, _ in ends):
            if tip.entry.event != "given":
                self._put(tip.with_event("returned"))
        self._tips = [tip for tip, _, _ in ends]
        self._ending = (tuple(self._sequence(*end) for end in ends), stop, None)

    def interrupt(self, stop: Stop, error: str | None = None, *, most: int) -> None:
        """End the run where it is; it returns the texts shown last, at most ``most`` of them, and
        without unverified drafts.

        Steps that were added and not written are dropped.
        """
        self._changed = {id: None for id in self._changed if id < len(self._steps)}
        tips = (tip for tip in self._tips if tip < len(self._steps))
        verified = (tip for tip in map(self._last_verified, tips) if tip is not None)
        shown = tuple(self._sequence(tip, None, stop) for tip in islice(verified, most))
        self._ending = (shown, stop, error)

    def texts(self) -> list[list[int]]:
        """The new tokens of every text that may be returned: those shown, the leading one first,
        then the finished ones."""
        ended = (id for id, step in enumerate(self._steps) if step.entry.event == "finished")
        return [[entry.token for entry in self._path(tip)] for tip in (*self._tips, *ended)]

    def take_changes(self) -> tuple[LazyTuple[Step], int | None]:
        """The steps new or changed since the last call, and the last step of the leading text."""
        changed = [self._steps[id] for id in self._changed]
        self._changed.clear()
        return _steps(changed), self._tips[0] if self._tips else None

    @property
    def trace(self) -> Trace | None:
        """The trace, once the run has ended."""
        if self._ending is None:
            return None
        sequences, stop, error = self._ending
        return Trace(
            **vars(self._header),
            steps=_steps(self._steps.copy()),
            ticks=tuple(self._ticks),
            sequences=sequences,
            stop=stop,
            error=error,
        )

    def _put(self, step: _WrittenStep) -> None:
        id = step.entry.id
        if id == len(self._steps):
            self._steps.append(step)
        else:
            self._steps[id] = step
        self._changed[id] = None

    def _incomplete_tail(self, prefix: Iterable[Token]) -> tuple[int, ...]:
        """The tokens of an incomplete character at the end of a prefix."""
        tail: tuple[int, ...] = ()
        for token in prefix:
            _, tail = self._decoder.add(tail, token.id)
        return tail

    def _sequence(self, tip: int, score: float | None, stop: Stop) -> Sequence:
        path = self._path(tip)
        ids = tuple(entry.token for entry in path)
        return Sequence(
            token_ids=ids,
            text=self._decoder.text((*self._incomplete, *ids), at_start=self._at_start),
            steps=tuple(entry.id for entry in path),
            stop=stop,
            score=score,
        )

    def _last_verified(self, tip: int) -> int | None:
        """The last step on the way to this one that is not merely drafted."""
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


def _steps(written: list[_WrittenStep]) -> LazyTuple[Step]:
    return LazyTuple(lambda: [each.step for each in written], len(written))
