"""Draws of several runs, worked out together.

Processors and a draw are a dozen small kernels, and to have a GPU do them takes the host longer
than the GPU: so all that runs of one thread want drawn before the first of them waits is one
recorded piece of work, and one question. Knows processors that look at nothing but scores. Refuses
to know which ones those are, and whose.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache, partial
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import LogitsProcessor

from engine.accel.graphs import Graphs
from engine.accel.host_future import HostFuture
from engine.sampling import first_to_ring
from engine.trace.distributions import Stage, processor_name


class Drawn(HostFuture):
    """Tokens that are drawn, (rows, 1), and what each processor left before."""

    def __init__(self, stages: list[Stage], tokens: Tensor) -> None:
        super().__init__(tokens)
        self.stages = stages


class Draws:
    """What is to be drawn by those who read one model."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._graphs: Graphs[_Played] | None = None
        self._threads = threading.local()  # each runs strategies of its own

    def add(self, processors: Sequence[LogitsProcessor], scores: Tensor, clocks: Tensor) -> Drawn:
        """Have tokens drawn from what processors leave of scores, once anybody wants his."""
        wanted = _Wanted(processors, scores, clocks, self._begin)
        self.waiting.append(wanted)
        return wanted

    @property
    def waiting(self) -> list[_Wanted]:
        """What has not begun."""
        waiting: list[_Wanted] = self._threads.__dict__.setdefault("waiting", [])
        return waiting

    def _begin(self) -> None:
        every = self.waiting.copy()
        self.waiting.clear()
        try:
            stages, tokens = self._played(every)
        except Exception as error:  # each learns of it when he waits for his own
            for each in every:
                each.failed = error
            return
        rows = _slices([len(each.scores) for each in every])
        left = _slices([len(each.scores) * len(each.processors) for each in every])
        for each, own, place in zip(every, left, rows, strict=True):
            each.take(stages[own], tokens, place)

    def _played(self, every: Sequence[_Wanted]) -> tuple[Tensor, HostFuture]:
        inputs = [tensor for each in every for tensor in (each.scores, each.clocks)]
        shape = tuple((each.scores.shape, *map(key, each.processors)) for each in every)
        work = partial(_all_drawn, [each.processors for each in every])
        with self._lock:
            self._graphs = self._graphs or Graphs(inputs[0].device)
            played = self._graphs.play(work, shape, *inputs)
            return played.stages.clone(), HostFuture(played.tokens)


class _Wanted(Drawn):
    """A draw that waits for others, to begin with them."""

    def __init__(
        self,
        processors: Sequence[LogitsProcessor],
        scores: Tensor,
        clocks: Tensor,
        begin: Callable[[], None],
    ) -> None:
        self.processors, self.scores, self.clocks = processors, scores, clocks
        self.failed: Exception | None = None
        self._begin = begin
        self._tokens: Callable[[], Tensor] | None = None

    @property
    def open(self) -> bool:
        """Yes: it is not even begun."""
        return True

    def begin(self) -> None:
        """Have all that waits drawn, unless it was."""
        if self._tokens is None and self.failed is None:
            self._begin()

    def take(self, stages: Tensor, tokens: HostFuture, rows: slice) -> None:
        """Take in one's own: stages, (processors × rows, vocab), and the rows of all tokens."""
        each = stages.view(len(self.processors), -1, stages.shape[-1])
        self.stages = named(self.processors, each)
        self._tokens = lambda: tokens()[rows]

    def __call__(self) -> Tensor:
        """The tokens."""
        self.begin()
        if self._tokens is None:
            assert self.failed is not None, "what has begun is drawn or has failed"
            raise self.failed
        return self._tokens()


class _Played(NamedTuple):
    """What each processor left, one draw after the other, and what was drawn."""

    stages: Tensor  # (processors × rows of each, vocab)
    tokens: Tensor  # (rows, 1)


def _all_drawn(every: Sequence[Sequence[LogitsProcessor]], *inputs: Tensor) -> _Played:
    stages = [in_turn(own, scores) for own, scores in zip(every, inputs[::2], strict=True)]
    tokens = [
        first_to_ring(own[-1].softmax(-1), clocks, 1)
        for own, clocks in zip(stages, inputs[1::2], strict=True)
    ]
    return _Played(torch.cat([own.flatten(0, 1) for own in stages]), torch.cat(tokens))


def in_turn(processors: Sequence[LogitsProcessor], scores: Tensor) -> Tensor:
    """What each processor leaves: (processors, rows, vocab)."""
    nothing = torch.empty(len(scores), 0, dtype=torch.long, device=scores.device)
    stages = []
    for processor in processors:
        scores = processor(nothing, scores)
        stages.append(scores)
    return torch.stack(stages)


def named(processors: Sequence[LogitsProcessor], after: Tensor) -> list[Stage]:
    """The same as stages."""
    names = map(processor_name, processors)
    return [Stage(name, own) for name, own in zip(names, after.unbind(), strict=True)]


@lru_cache(maxsize=64)
def key(processor: LogitsProcessor) -> Hashable:
    """What tells a processor from others, if that is plain numbers; else None."""
    own = vars(processor)
    if not all(isinstance(value, int | float) for value in own.values()):
        return None
    return (type(processor), *sorted(own.items()))


def _slices(sizes: Sequence[int]) -> list[slice]:
    return [slice(*pair) for pair in pairwise(accumulate(sizes, initial=0))]
