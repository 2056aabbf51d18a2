"""Cached graph calls: the small computations of a decoding step, each replayed as one CUDA graph.

Choosing a token takes a dozen small kernels, and launching one takes the host longer than running
it takes the GPU. So the work of a step is recorded as one graph for each shape, and its result is
copied to the host in one piece. Draws of several runs are batched into one graph: see
`GraphCalls.sample`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache, partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import LogitsProcessor

from engine.accel import enabled
from engine.accel.graphs import Graphs
from engine.accel.host_future import HostFuture
from engine.sampling import race
from engine.trace.distributions import Stage, processor_name


class Sampled(HostFuture):
    """Drawn tokens, (rows, 1), the scores that each processor left before the draw, and the random
    numbers of the draw, (rows, vocab)."""

    def __init__(self, stages: list[Stage], tokens: Tensor, noise: Tensor) -> None:
        super().__init__(tokens)
        self.stages = stages
        self.noise = noise


class GraphCalls:
    """The graph calls of one model, shared by all runs that use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # One for each kind of work: if one fails to record, the others still can.
        self._graphs: dict[str, Graphs[Any]] = {}
        self._threads = threading.local()  # each thread runs its own strategies

    def __call__(
        self, work: Callable[..., Tensor], *inputs: Tensor, **constants: Any
    ) -> HostFuture:
        """Start ``work(*inputs, **constants)`` on the device of the first input.

        ``work`` must be the same function object every time and must not read from the device.
        """
        ready = partial(work, **constants)
        if inputs[0].device.type != "cuda" or not enabled():
            return HostFuture(ready(*inputs))
        shape = (work, *sorted(constants.items()), *(tensor.shape for tensor in inputs))
        with self._lock:
            return HostFuture(self._play("work", ready, shape, *inputs))

    def process(self, processors: Sequence[LogitsProcessor], scores: Tensor) -> list[Stage]:
        """Apply processors that read only scores, with one launch for all of them."""
        shape = (scores.shape, *map(processor_key, processors))
        with self._lock:
            work = partial(_apply, processors)
            stages: Tensor = self._play("process", work, shape, scores).clone()
        return _named(processors, stages)

    def sample(
        self, processors: Sequence[LogitsProcessor], scores: Tensor, noise: Tensor
    ) -> Sampled:
        """Apply such processors and draw a token from each row.

        The draws of all runs of a thread are launched together, when the first of them is needed.
        """
        draw = _BatchedDraw(processors, scores, noise, self._launch_draws)
        self.waiting.append(draw)
        return draw

    @property
    def waiting(self) -> list[_BatchedDraw]:
        """The draws of this thread that are not launched yet."""
        waiting: list[_BatchedDraw] = self._threads.__dict__.setdefault("waiting", [])
        return waiting

    def _launch_draws(self) -> None:
        draws = self.waiting.copy()
        self.waiting.clear()
        try:
            stages, tokens = self._draw_all(draws)
        except Exception as error:  # raised again for each run when it reads its own tokens
            for draw in draws:
                draw.error = error
            return
        rows = _slices([len(draw.scores) for draw in draws])
        of_stages = _slices([len(draw.scores) * len(draw.processors) for draw in draws])
        for draw, own_stages, own_rows in zip(draws, of_stages, rows, strict=True):
            draw.receive(stages[own_stages], tokens, own_rows)

    def _draw_all(self, draws: Sequence[_BatchedDraw]) -> tuple[Tensor, HostFuture]:
        inputs = [tensor for draw in draws for tensor in (draw.scores, draw.noise)]
        shape = tuple((draw.scores.shape, *map(processor_key, draw.processors)) for draw in draws)
        work = partial(_apply_and_draw, [draw.processors for draw in draws])
        with self._lock:
            result: _Draws = self._play("sample", work, shape, *inputs)
            return result.stages.clone(), HostFuture(result.tokens)

    def _play(self, kind: str, work: Callable[..., Any], shape: Hashable, *inputs: Tensor) -> Any:
        """Replay the graph of a shape; the lock is held until its result has been copied."""
        if kind not in self._graphs:
            self._graphs[kind] = Graphs(inputs[0].device)
        return self._graphs[kind].play(work, shape, *inputs)


class _BatchedDraw(Sampled):
    """A draw that waits for those of other runs, to be launched with them."""

    def __init__(
        self,
        processors: Sequence[LogitsProcessor],
        scores: Tensor,
        noise: Tensor,
        launch: Callable[[], None],
    ) -> None:
        self.processors, self.scores, self.noise = processors, scores, noise
        self.error: Exception | None = None
        self._launch = launch
        self._tokens: Callable[[], Tensor] | None = None

    @property
    def pending(self) -> bool:
        """Always: it is not even launched."""
        return True

    def start(self) -> None:
        """Launch all draws that wait, unless this one has been."""
        if self._tokens is None and self.error is None:
            self._launch()

    def receive(self, stages: Tensor, tokens: HostFuture, rows: slice) -> None:
        """Take its part of a launch: stages, (processors × rows, vocab), and rows of the tokens."""
        self.stages = _named(
            self.processors, stages.view(len(self.processors), -1, stages.shape[-1])
        )
        self._tokens = lambda: tokens.result()[rows]

    def result(self) -> Tensor:
        """The tokens, (rows, 1)."""
        self.start()
        if self._tokens is None:
            assert self.error is not None, "a launched draw has tokens or an error"
            raise self.error
        return self._tokens()


class _Draws(NamedTuple):
    """What one launch of several draws gives."""

    stages: Tensor  # (processors × rows of each draw, vocab)
    tokens: Tensor  # (rows, 1)


def _apply_and_draw(processors: Sequence[Sequence[LogitsProcessor]], *inputs: Tensor) -> _Draws:
    stages = [_apply(own, scores) for own, scores in zip(processors, inputs[::2], strict=True)]
    tokens = [
        race(own[-1].softmax(-1), noise, 1) for own, noise in zip(stages, inputs[1::2], strict=True)
    ]
    return _Draws(torch.cat([own.flatten(0, 1) for own in stages]), torch.cat(tokens))


def _apply(processors: Sequence[LogitsProcessor], scores: Tensor) -> Tensor:
    """What each processor leaves: (processors, rows, vocab)."""
    no_text = torch.empty(len(scores), 0, dtype=torch.long, device=scores.device)
    stages = []
    for processor in processors:
        scores = processor(no_text, scores)
        stages.append(scores)
    return torch.stack(stages)


def _named(processors: Sequence[LogitsProcessor], stages: Tensor) -> list[Stage]:
    names = map(processor_name, processors)
    return [Stage(name, scores) for name, scores in zip(names, stages.unbind(), strict=True)]


@lru_cache(maxsize=64)
def processor_key(processor: LogitsProcessor) -> Hashable:
    """What distinguishes a processor whose only state is numbers; None for any other."""
    state = vars(processor)
    if not all(isinstance(value, int | float) for value in state.values()):
        return None
    return (type(processor), *sorted(state.items()))


def _slices(sizes: Sequence[int]) -> list[slice]:
    return [slice(*pair) for pair in pairwise(accumulate(sizes, initial=0))]
