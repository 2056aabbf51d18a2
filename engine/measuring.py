"""A GPU asked for the numbers of distributions: for all of a tick at once, beside its other work.

Every question to a GPU waits for an answer, and every launch takes the host as long as a small
kernel takes the device. So all that there may be to tell of all rows is worked out as one recorded
graph, on a stream of its own, and fetched in one piece. Knows what is asked. Refuses to know what
the numbers are told as.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.backend import TOP, Reading, parts
from engine.graphs import Graphs, bucket
from engine.measure import (
    Numbers,
    Picks,
    Request,
    Told,
    final_of,
    in_turn,
    least_kept,
    log_probs_before,
    log_probs_told,
    picked_by_row,
    rows_of,
    tokens_told,
)

ROWS = 32  # most rows whose measuring is recorded: it keeps a copy of what it reads
RECORDINGS = 8  # kept for the same reason

_PARTS = ("logits", "log_probs", "entropy", "varentropy", "top_tokens")  # of a reading


class Measuring:
    """Measures for all who read one model; on a GPU what is asked for again is recorded."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._graphs: Graphs[_Asked] | None = None
        self._stream: Any = None

    def measured(
        self, requests: Sequence[Request], ready: Any = None
    ) -> list[Callable[[], Numbers]]:
        """The numbers of some rows, request by request.

        A GPU is asked at once, beside what it is busy with: to call an answer waits for it.
        ``ready`` is the CUDA event after which the rows are there.
        """
        if _device(requests).type == "cpu":
            return [partial(in_turn, request) for request in requests]
        return self.at_once(requests, ready)

    @contextmanager
    def aside(self, ready: Any) -> Iterator[None]:
        """Have a GPU work beside what it is busy with, on what is there after the event ``ready``.

        Whoever does so keeps what is worked on until it is done.
        """
        if ready is None:
            yield
            return
        self._stream = self._stream or torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch
        self._stream.wait_event(ready)
        with torch.cuda.stream(self._stream):
            yield

    def at_once(self, requests: Sequence[Request], ready: Any) -> list[Callable[[], Numbers]]:
        """Have the device work out all there may be to tell, and ask it once."""
        device = _device(requests)
        picked, widths = _picked(requests)
        stages = tuple(len(request.stages) for request in requests)
        work = partial(_ask, stages, widths)
        with self._lock, self.aside(ready):
            self._graphs = self._graphs or Graphs(device, most=RECORDINGS)
            # Rows that do not lie together are copied: that is part of the work beside.
            inputs = [picked, *(tensor for request in requests for tensor in _inputs(request))]
            if sum(len(request.places) for request in requests) <= ROWS:
                shape = (stages, widths, *(tensor.shape for tensor in inputs))
                asked = self._graphs.play(work, shape, *inputs)
            else:
                asked = work(*(tensor.to(device) for tensor in inputs))
            told = asked.numbers.to("cpu", non_blocking=True)
            there = torch.cuda.current_stream().record_event() if ready is not None else None
        answer = _Answer(told, asked.parts, there)
        return [partial(_numbers, answer, at, request) for at, request in enumerate(requests)]


class _Part(NamedTuple):
    """Where some numbers lie among others, as rows of one width."""

    start: int
    rows: int
    width: int

    def row(self, numbers: list[float], at: int) -> list[float]:
        """One of the rows."""
        start = self.start + at * self.width
        return numbers[start : start + self.width]

    def every(self, numbers: list[float]) -> list[list[float]]:
        """All of them."""
        return [self.row(numbers, at) for at in range(self.rows)]


class _Asked(NamedTuple):
    """Numbers of several shapes, one after the other: float64 leaves whole numbers whole."""

    numbers: Tensor
    parts: list[list[_Part]]  # of each request


class _Answer:
    """What was asked of a device, once it is there."""

    def __init__(self, told: Tensor, parts: list[list[_Part]], there: Any) -> None:
        self.parts = parts  # of each request
        self._told = told
        self._there = there  # the event that says so

    # As lists: to look at one more tensor takes as long as to look at a hundred numbers.

    @cached_property
    def numbers(self) -> list[float]:
        """All there are."""
        return list(self._awaited.tolist())

    @cached_property
    def probs(self) -> list[float]:
        """The same as if all were log-probabilities: what probabilities they stand for."""
        return list(self._awaited.float().exp().tolist())

    @cached_property
    def _awaited(self) -> Tensor:
        if self._there is not None:
            self._there.synchronize()
        return self._told


def _device(requests: Sequence[Request]) -> torch.device:
    return requests[0].places[0].reading.logits.device


def _picked(requests: Sequence[Request]) -> tuple[Tensor, tuple[int, ...]]:
    """The picked tokens of all requests one after the other, and how many each has for a row; they
    are still on the host, which hands them over in one piece."""
    filled: list[int] = []
    widths = []
    for request in requests:
        picked = picked_by_row(request)
        widths.append(bucket(len(picked[0])))  # so that shapes repeat
        for tokens in picked:
            filled += tokens + [-1] * (widths[-1] - len(tokens))
    return torch.tensor(filled), tuple(widths)


def _inputs(request: Request) -> list[Tensor]:
    """What a device works on: a reading's parts, stages."""
    return [*parts(request.places, *_PARTS), *request.stages]


def _ask(stages: Sequence[int], widths: Sequence[int], picked: Tensor, *inputs: Tensor) -> _Asked:
    """Work out all numbers of all requests, which have so many stages each."""
    rest, asked, start = list(inputs), [], 0
    for count, width in zip(stages, widths, strict=True):
        own = rest[: len(_PARTS) + count]
        del rest[: len(_PARTS) + count]
        named = dict(zip(_PARTS, own, strict=False))
        reading = Reading(**named, hidden=own[0].new_empty(0))
        end = start + len(own[0]) * width
        tokens = picked[start:end].view(-1, width)
        asked.append(asked_of(tokens, reading, *own[len(_PARTS) :]))
        start = end
    flat = [part.flatten(1).double() for of_one in asked for part in of_one]
    starts = accumulate((part.numel() for part in flat), initial=0)
    places = iter([_Part(start, *part.shape) for start, part in zip(starts, flat, strict=False)])
    return _Asked(
        torch.cat([part.flatten() for part in flat]),
        [[next(places) for _ in of_one] for of_one in asked],
    )


def _numbers(answer: _Answer, at: int, request: Request) -> Numbers:
    tokens, log_probs, spread, higher, *of_stages = answer.parts[at]
    raw_entropy, raw_varentropy = spread.every(answer.numbers)
    told = {
        row: _told(answer, tokens, log_probs, higher.width, row) for row in rows_of(request.picks)
    }
    numbers = Numbers(
        told=told,
        last=0,
        raw_entropy=raw_entropy,
        raw_varentropy=raw_varentropy,
        final_entropy=raw_entropy,
        kept=[],
        lowest=[],
        given=[],
        ranks=_ranked(request.picks, told, higher.every(answer.numbers)),
    )
    if not of_stages:
        return numbers
    alive, lowest, final_entropy = of_stages
    given, *kept = (list(map(int, left)) for left in alive.every(answer.numbers))
    return numbers._replace(
        last=min(TOP, request.places[0].reading.logits.shape[-1]),
        final_entropy=final_entropy.row(answer.numbers, 0),
        kept=kept,
        lowest=lowest.every(answer.probs),
        given=given,
    )


def _told(answer: _Answer, tokens: _Part, log_probs: _Part, picked: int, row: int) -> Told:
    """What one row has, the first so many of its tokens being those picked."""
    each = log_probs.width // tokens.width  # numbers of a token
    own, probs = log_probs.row(answer.numbers, row), log_probs.row(answer.probs, row)
    ids = list(map(int, tokens.row(answer.numbers, row)))
    return Told(ids, _cut(own[: picked * each], each), _cut(probs, each))


def _cut(numbers: list[float], size: int) -> list[list[float]]:
    return [numbers[at : at + size] for at in range(0, len(numbers), size)]


def _ranked(picks: Picks, told: dict[int, Told], higher: list[list[float]]) -> list[int]:
    """Each pick's place: among a row's most probable tokens, else behind all that are higher."""
    columns, ranks = dict.fromkeys(told, 0), []
    for row, token in picks:  # a row's picks are its first columns, in order
        width = len(higher[row])
        best = told[row].tokens[width : width + TOP]
        behind = best.index(token) if token in best else int(higher[row][columns[row]])
        ranks.append(1 + behind)
        columns[row] += 1
    return ranks


def asked_of(picked: Tensor, reading: Reading, *stages: Tensor) -> list[Tensor]:
    """All numbers of some rows, on their device, as tables: (something, its numbers…)."""
    before = log_probs_before(reading, stages)
    final = final_of(stages[-1], few=False) if stages else None
    tokens = tokens_told(reading, final, picked)
    own = reading.logits.gather(-1, tokens[:, : picked.shape[-1]])  # (rows, picked)
    asked = [
        tokens,
        log_probs_told(before, stages, final, tokens),
        torch.stack([reading.entropy, reading.varentropy]),
        (reading.logits[:, None] > own[:, :, None]).sum(-1),
    ]
    if final:
        alive = [before[0] > -torch.inf, *(scores > -torch.inf for scores in stages)]
        lowest = [
            least_kept(given, had & left)
            for given, had, left in zip(before, alive[:-1], alive[1:], strict=True)
        ]
        asked += [torch.stack(alive).sum(-1), torch.stack(lowest), final.entropy[None]]
    return asked
