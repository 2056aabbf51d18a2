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
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.backend import Place
from engine.measure import Numbers, Request, rows_of
from engine.measuring import Measuring
from engine.observe import GREEN_LIST, Stage, green, observed
from engine.question import reached
from engine.record import Entry, Recorder
from engine.tokens import Speller

MOST = 8  # what may wait at once: each holds rows of the vocabulary


class Scores(NamedTuple):
    """Scores that a strategy asked for, and how they came about."""

    places: Sequence[Place]  # where the model said what they were made of
    given: Tensor  # (rows, vocab) the model's logits or log-probabilities, as they were asked for
    stages: list[Stage]


@dataclass(eq=False)
class _Untold:
    """Steps that have their numbers, and what the rest is read off."""

    scores: Scores
    picks: list[tuple[int, int]]  # (row, token) of each that has more to tell
    entries: list[Entry]
    brief: set[int]  # the steps that have not
    numbers: Callable[[], Numbers] | None = None  # once the device has been asked

    @property
    def request(self) -> Request:
        """What to ask the device."""
        places, _, stages = self.scores
        return Request(places, [stage.scores for stage in stages], self.picks)


class Teller:
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
        self._there: Any = None  # the event after which that is there, if it was marked

    def add(
        self, scores: Scores, picks: Sequence[tuple[int, int] | None], entries: Sequence[Entry]
    ) -> None:
        """Take in what is to be told of each step, if more than that it is there; whoever has it
        wait says when it is time."""
        read = [pick for pick in picks if pick is not None]
        brief = {entry.id for entry, pick in zip(entries, picks, strict=True) if pick is None}
        self._untold.append(_Untold(*_looked_at(scores, read), list(entries), brief))
        if not self.waits or len(self._untold) > MOST:
            self.tell()

    def mark(self) -> None:
        """What is to be told next is there now, whatever the device is given to do before that."""
        self._there = reached(self._device)

    def ready(self) -> Any:
        """The CUDA event, where there is one, after which all that waits to be told is there."""
        there, self._there = self._there or reached(self._device), None
        return there

    def tell(self, ready: Any = None) -> None:
        """Tell everything that waits; the scores are there after the event ``ready``."""
        while self._untold:
            untold = self._untold.popleft()
            _, given, stages = untold.scores
            ready = ready or self.ready()
            if untold.numbers is None:
                [untold.numbers] = self._measuring.measured([untold.request], ready)
            marks: Sequence[dict[str, bool]] = [{}] * len(untold.picks)
            if any(stage.name == GREEN_LIST for stage in stages):
                with self._measuring.aside(ready):
                    marks = green(given, stages, untold.picks)
            vocabulary = given.shape[-1]
            told = observed(untold.numbers(), stages, untold.picks, vocabulary, self._speller)
            rest = zip(told, marks, strict=True)
            for entry in untold.entries:
                seen, mark = (None, {}) if entry.id in untold.brief else next(rest)
                self._recorder.write(entry, seen, mark)

    def forget(self) -> None:
        """Let go of what nobody will be told."""
        self._untold.clear()


def _looked_at(
    scores: Scores, picks: list[tuple[int, int]]
) -> tuple[Scores, list[tuple[int, int]]]:
    """Leave out rows in which nothing was picked: a tree has many. Those of stages would have to be
    copied."""
    if scores.stages or not picks or len(scores.places) == 1:
        return scores, picks
    rows = sorted(rows_of(picks))
    if len(rows) == len(scores.places):
        return scores, picks
    places = [scores.places[row] for row in rows]
    return scores._replace(places=places), [(rows.index(row), token) for row, token in picks]


def ask_for_all(tellers: Sequence[Teller], ready: Any) -> None:
    """Have devices read off what several have to tell, in one go and without waiting for it;
    what was asked for before is left alone."""
    waiting: dict[Measuring, list[_Untold]] = defaultdict(list)
    for teller in tellers:
        asked = [untold for untold in teller._untold if untold.numbers is None]
        waiting[teller._measuring] += asked
    for measuring, untold in waiting.items():
        if untold:
            answers = measuring.measured([each.request for each in untold], ready)
            for each, numbers in zip(untold, answers, strict=True):
                each.numbers = numbers


def works_by_itself(device: torch.device) -> bool:
    """Whether a device computes while this processor does something else."""
    return device.type == "cuda"
