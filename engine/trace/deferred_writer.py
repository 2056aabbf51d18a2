"""Buffers trace entries and writes them while the GPU is busy.

A step gets its id as soon as its token is picked. The rest of its record is computed from the
scores it was picked from: at once on a CPU, and on a GPU during the next tick.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.accel.host_future import record_event
from engine.trace.distributions import Stage, observations
from engine.trace.gpu_statistics import BatchedStatistics
from engine.trace.lazy_tuple import LazyTuple
from engine.trace.recorder import Entry, Recorder
from engine.trace.statistics import (
    KnownStatistics,
    Picks,
    Statistics,
    StatisticsRequest,
    picked_rows,
)
from engine.trace.token_text import TokenDecoder
from engine.trie.backend import OutputRow

PENDING = 8  # most batches of steps that wait: each holds rows of the vocabulary

Notes = Callable[[Picks], Sequence[Mapping[str, Any]]]


class Scores(NamedTuple):
    """Scores that a strategy decided with, and how they came about."""

    output_rows: Sequence[OutputRow]  # where the model's output for each row is
    given: Tensor | None  # (rows, vocab) the model's logits or log-probabilities, if they were read
    stages: list[Stage]
    known: KnownStatistics | None = None  # what the host has instead
    notes: Notes | None = None  # gives further notes on picks
    noise: Tensor | None = None  # (rows, vocab) the random numbers that tokens were drawn with

    @property
    def names(self) -> list[str]:
        """The names of the stages."""
        return [stage.name for stage in self.stages]

    @property
    def vocabulary(self) -> int:
        """The size of the vocabulary."""
        return self.output_rows[0].output.logits.shape[-1]


@dataclass(eq=False)
class _Pending:
    """Steps that have their ids, and the scores that the rest is computed from."""

    scores: Scores
    picks: list[tuple[int, int]]  # (row, token) of each step with a distribution
    entries: Sequence[Entry]
    at: Sequence[int | None]  # of each step its index among the picks, if it is there
    statistics: Callable[[], Statistics] | None = None  # once they were requested

    @property
    def request(self) -> StatisticsRequest:
        """The statistics to compute."""
        scores = self.scores
        stages = [stage.scores for stage in scores.stages]
        return StatisticsRequest(scores.output_rows, stages, self.picks, scores.noise)


class DeferredWriter:
    """Writes the steps of one run in the order their tokens were picked."""

    def __init__(
        self,
        recorder: Recorder,
        token_decoder: TokenDecoder,
        statistics: BatchedStatistics,
        device: torch.device,
    ) -> None:
        self.deferred = is_asynchronous(device)
        self._recorder = recorder
        self._token_decoder = token_decoder
        self._statistics = statistics
        self._device = device
        self._pending: deque[_Pending] = deque()

    def add(
        self, scores: Scores, picks: Sequence[tuple[int, int] | None], entries: Sequence[Entry]
    ) -> None:
        """Add steps, each with its (row, token) if it gets a distribution."""
        observed = [pick for pick in picks if pick is not None]
        indices = count()
        at = [None if pick is None else next(indices) for pick in picks]
        pending = _Pending(*_picked_only(scores, observed), entries, at)
        if scores.known and scores.known.cover(observed):
            pending.statistics = partial(scores.known.statistics, observed)
        self._pending.append(pending)
        if not self.deferred or len(self._pending) > PENDING:
            self.flush()

    @property
    def needs_statistics(self) -> bool:
        """Whether statistics are to be requested for a pending step."""
        return any(pending.statistics is None for pending in self._pending)

    def ready(self) -> Any:
        """The CUDA event after which all pending scores are complete; None on a CPU."""
        return record_event(self._device)

    def flush(self, ready: Any = None) -> None:
        """Write all pending steps; their scores are complete after the event ``ready``."""
        while self._pending:
            pending = self._pending.popleft()
            scores, picks = pending.scores, pending.picks
            if pending.statistics is None:
                ready = ready or self.ready()
                [pending.statistics] = self._statistics.compute([pending.request], ready)
            notes: Sequence[Mapping[str, Any]] = [{}] * len(picks)
            if scores.notes is not None:
                ready = ready or self.ready()
                with self._statistics.side_stream(ready):
                    notes = scores.notes(picks)
            names, vocabulary = scores.names, scores.vocabulary
            build = partial(
                observations, pending.statistics, names, picks, vocabulary, self._token_decoder
            )
            observed = LazyTuple(build)
            for entry, at in zip(pending.entries, pending.at, strict=True):
                if at is None:
                    self._recorder.write(entry)
                else:
                    self._recorder.write(entry, partial(observed.__getitem__, at), notes[at])

    def discard(self) -> None:
        """Drop all pending steps."""
        self._pending.clear()


def _picked_only(
    scores: Scores, picks: list[tuple[int, int]]
) -> tuple[Scores, list[tuple[int, int]]]:
    """Leave out rows without a pick, of which a tree has many. Rows of stages would have to be
    copied, so they stay."""
    if scores.stages or scores.known or not picks or len(scores.output_rows) == 1:
        return scores, picks
    rows = sorted(picked_rows(picks))
    if len(rows) == len(scores.output_rows):
        return scores, picks
    output_rows = [scores.output_rows[row] for row in rows]
    noise = None if scores.noise is None else torch.stack([scores.noise[row] for row in rows])
    scores = scores._replace(output_rows=output_rows, noise=noise)
    return scores, [(rows.index(row), token) for row, token in picks]


def request_statistics(writers: Sequence[DeferredWriter], ready: Any) -> None:
    """Start computing the statistics that several writers still need, in one batch per model."""
    by_model: dict[BatchedStatistics, list[_Pending]] = defaultdict(list)
    for writer in writers:
        missing = [pending for pending in writer._pending if pending.statistics is None]
        by_model[writer._statistics] += missing
    for statistics, missing in by_model.items():
        if missing:
            results = statistics.compute([pending.request for pending in missing], ready)
            for pending, result in zip(missing, results, strict=True):
                pending.statistics = result


def is_asynchronous(device: torch.device) -> bool:
    """Whether a device computes while the host continues."""
    return device.type == "cuda"
