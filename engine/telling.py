"""What a run tells its trace, told when there is time for it.

A step has its number as soon as its token is picked. What else there is to tell is read off the
scores it was picked from: at once where the processor that tells is the one that computes, and
where a GPU computes by itself, while that is busy with the next tick. Knows what waits to be told.
Refuses to know why a token was picked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.backend import Reading
from engine.measure import Measuring
from engine.observe import Observed, Stage, green, observing
from engine.record import Entry, Recorder
from engine.tokens import Speller

MOST = 8  # what may wait at once: each holds rows of the vocabulary


class Scores(NamedTuple):
    """Scores that a strategy asked for, and how they came about."""

    reading: Reading
    given: Tensor  # (rows, vocab) the model's logits or log-probabilities, as they were asked for
    stages: list[Stage]


@dataclass(eq=False)
class _Untold:
    """Steps that have their numbers, and what the rest is read off."""

    scores: Scores
    picks: list[tuple[int, int]]  # (row, token) of each
    entries: list[Entry]
    ready: Any  # the CUDA event after which the scores are there, or None
    read: Callable[[], list[Observed]] | None = None  # once the device has been asked


class Teller:
    """Tells of one run, in the order its tokens were picked."""

    def __init__(
        self, recorder: Recorder, speller: Speller, measuring: Measuring, device: torch.device
    ) -> None:
        self.waits = works_by_itself(device)
        self._recorder = recorder
        self._speller = speller
        self._measuring = measuring
        self._untold: deque[_Untold] = deque()

    def add(
        self, scores: Scores, picks: Sequence[tuple[int, int]], entries: Sequence[Entry]
    ) -> None:
        """Take in what is to be told; whoever has it wait says when it is time."""
        on_gpu = scores.given.device.type == "cuda"
        ready = torch.cuda.current_stream().record_event() if on_gpu else None
        self._untold.append(_Untold(scores, list(picks), list(entries), ready))
        if not self.waits or len(self._untold) > MOST:
            self.tell()

    def ask(self) -> None:
        """Have the device read off what is to be told, without waiting for it."""
        for untold in self._untold:
            if untold.read is None:
                reading, _, stages = untold.scores
                untold.read = observing(
                    reading, stages, untold.picks, self._speller, self._measuring, untold.ready
                )

    def tell(self) -> None:
        """Tell everything that waits."""
        self.ask()
        while self._untold:
            untold = self._untold.popleft()
            assert untold.read is not None
            _, given, stages = untold.scores
            with self._measuring.aside(untold.ready):
                marks = green(given, stages, untold.picks)
            for entry, seen, mark in zip(untold.entries, untold.read(), marks, strict=True):
                self._recorder.write(entry, seen, mark)

    def forget(self) -> None:
        """Let go of what nobody will be told."""
        self._untold.clear()


def works_by_itself(device: torch.device) -> bool:
    """Whether a device computes while this processor does something else."""
    return device.type == "cuda"
