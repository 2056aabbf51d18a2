"""What a run tells its trace, told when there is time for it.

A step has its number as soon as its token is picked. What else there is to tell is read off the
scores it was picked from: at once where the processor that tells is the one that computes, and
where a GPU computes by itself, while that is busy with the next tick. Knows what waits to be told.
Refuses to know why a token was picked.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.accel.host_future import record_event
from engine.trace.distributions import GREEN_LIST, Stage, green, observed
from engine.trace.gpu_statistics import Measuring
from engine.trace.lazy_tuple import LazyTuple
from engine.trace.recorder import Entry, Recorder
from engine.trace.statistics import Known, Numbers, Request, rows_of
from engine.trace.token_text import Speller
from engine.trie.backend import Place

MOST = 8  # what may wait at once: each holds rows of the vocabulary


class Scores(NamedTuple):
    """Scores that a strategy asked for, and how they came about."""

    places: Sequence[Place]  # where the model said what they were made of
    given: Tensor | None  # (rows, vocab) the model's logits or log-probabilities, if one looked
    stages: list[Stage]
    known: Known | None = None  # what the host was told instead

    @property
    def names(self) -> list[str]:
        """What the stages are called."""
        return [stage.name for stage in self.stages]

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""
        return self.places[0].reading.logits.shape[-1]


@dataclass(eq=False)
class _Untold:
    """Steps that have their numbers, and what the rest is read off."""

    scores: Scores
    picks: list[tuple[int, int]]  # (row, token) of each that has more to tell
    entries: Sequence[Entry]
    at: Sequence[int | None]  # of each its place among the picks, if it has more to tell
    numbers: Callable[[], Numbers] | None = None  # once the device has been asked

    @property
    def request(self) -> Request:
        """What to ask the device."""
        scores = self.scores
        return Request(scores.places, [stage.scores for stage in scores.stages], self.picks)


class DeferredWriter:
    """Tells of one run, in the order its tokens were picked."""

    def __init__(
        self, recorder: Recorder, speller: Speller, measuring: Measuring, device: torch.device
    ) -> None:
        self.waits = works_by_itself(device)
        self._recorder = recorder
        self._speller = speller
        self._measuring = measuring
        self._device = device
        self._untold: deque[_Untold] = deque()

    def add(
        self, scores: Scores, picks: Sequence[tuple[int, int] | None], entries: Sequence[Entry]
    ) -> None:
        """Take in what is to be told of each step, if more than that it is there; whoever has it
        wait says when it is time."""
        read = [pick for pick in picks if pick is not None]
        places = count()
        at = [None if pick is None else next(places) for pick in picks]
        untold = _Untold(*_looked_at(scores, read), entries, at)
        if scores.known and scores.known.has(read):
            untold.numbers = partial(scores.known.numbers, read)
        self._untold.append(untold)
        if not self.waits or len(self._untold) > MOST:
            self.tell()

    @property
    def asks(self) -> bool:
        """Whether a device is to be asked for something."""
        return any(untold.numbers is None for untold in self._untold)

    def ready(self) -> Any:
        """The CUDA event, where there is one, after which all that waits to be told is there."""
        return record_event(self._device)

    def tell(self, ready: Any = None) -> None:
        """Tell everything that waits; the scores are there after the event ``ready``."""
        while self._untold:
            untold = self._untold.popleft()
            scores, picks = untold.scores, untold.picks
            if untold.numbers is None:
                ready = ready or self.ready()
                [untold.numbers] = self._measuring.measured([untold.request], ready)
            marks: Sequence[dict[str, bool]] = [{}] * len(picks)
            if scores.given is not None and GREEN_LIST in scores.names:
                ready = ready or self.ready()
                with self._measuring.aside(ready):
                    marks = green(scores.given, scores.stages, picks)
            names, vocabulary = scores.names, scores.vocabulary
            tell = partial(observed, untold.numbers, names, picks, vocabulary, self._speller)
            told = LazyTuple(tell)
            for entry, at in zip(untold.entries, untold.at, strict=True):
                if at is None:
                    self._recorder.write(entry)
                else:
                    self._recorder.write(entry, partial(told.__getitem__, at), marks[at])

    def forget(self) -> None:
        """Let go of what nobody will be told."""
        self._untold.clear()


def _looked_at(
    scores: Scores, picks: list[tuple[int, int]]
) -> tuple[Scores, list[tuple[int, int]]]:
    """Leave out rows in which nothing was picked: a tree has many. Those of stages would have to be
    copied."""
    if scores.stages or scores.known or not picks or len(scores.places) == 1:
        return scores, picks
    rows = sorted(rows_of(picks))
    if len(rows) == len(scores.places):
        return scores, picks
    places = [scores.places[row] for row in rows]
    return scores._replace(places=places), [(rows.index(row), token) for row, token in picks]


def ask_for_all(tellers: Sequence[DeferredWriter], ready: Any) -> None:
    """Have devices read off what several have to tell, in one go and without waiting for it;
    what was asked for before is left alone."""
    waiting: dict[Measuring, list[_Untold]] = defaultdict(list)
    for writer in tellers:
        asked = [untold for untold in writer._untold if untold.numbers is None]
        waiting[writer._measuring] += asked
    for measuring, untold in waiting.items():
        if untold:
            answers = measuring.measured([each.request for each in untold], ready)
            for each, numbers in zip(untold, answers, strict=True):
                each.numbers = numbers


def works_by_itself(device: torch.device) -> bool:
    """Whether a device computes while this processor does something else."""
    return device.type == "cuda"
