"""A GPU asked for the numbers of distributions: for all of a tick at once, beside its other work.

Every question to a GPU waits for an answer, and every launch takes the host as long as a small
kernel takes the device. So all that there may be to tell of all rows is worked out as one recorded
graph, on a stream of its own, and fetched in one piece. Knows what is asked. Refuses to know what
the numbers are told as.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate, islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.accel.graphs import Graphs, bucket
from engine.accel.host_future import HostFuture
from engine.trace.gpu_answers import Answer, Part, numbers_of
from engine.trace.statistics import (
    Numbers,
    Request,
    asked_of,
    in_turn,
    picked_by_row,
)
from engine.trie.backend import Reading

ROWS = 64  # most rows whose measuring is recorded: it keeps a copy of what it reads
RECORDINGS = 16  # kept for the same reason
MOST = 8  # answers that may be under way: what they are read off is kept
SOME_ROWS, SOME_PICKS = 8, 16  # what several are filled up to: to record a shape takes longer

_PARTS = ("logits", "log_probs", "entropy", "varentropy", "top_tokens")  # of a reading


class Measuring:
    """Measures for all who read one model; on a GPU what is asked for again is recorded."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._graphs: Graphs[_Asked] | None = None
        self._stream: Any = None
        self._read: deque[tuple[HostFuture, Sequence[Request]]] = deque()

    def measured(
        self, requests: Sequence[Request], ready: Any = None
    ) -> list[Callable[[], Numbers]]:
        """The numbers of some rows, request by request.

        A GPU is asked at once, beside what it is busy with: to call an answer waits for it.
        ``ready`` is the CUDA event after which the rows are there. Answers hold none of the rows.
        """
        if _device(requests).type == "cpu":
            return [_known(in_turn(request)) for request in requests]
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
        picked = [picked_by_row(request) for request in requests]
        tables, spans = _tables(requests, picked), _spans(requests)
        work = partial(_ask, len(spans), tables)
        inputs = [_numbered(requests, picked, tables, spans), *_inputs(requests, tables, spans)]
        with self._lock, self.aside(ready):
            self._graphs = self._graphs or Graphs(device, most=RECORDINGS)
            if sum(map(len, spans.values())) <= ROWS:
                shape = (tables, *(tensor.shape for tensor in inputs))
                asked = self._graphs.play(work, shape, *inputs)
            else:
                asked = work(*(tensor.to(device) for tensor in inputs))
            answer = Answer(question := HostFuture(asked.numbers))
            self._keep(question, requests)
        answers: dict[int, Callable[[], Numbers]] = {}
        for table, parts in zip(tables, asked.parts, strict=True):
            starts = accumulate((len(requests[at].places) for at in table.requests), initial=0)
            for at, start in zip(table.requests, starts, strict=False):
                rows = range(start, start + len(requests[at].places))
                answers[at] = partial(numbers_of, answer, parts, rows, requests[at].picks)
        return [answers[at] for at in range(len(requests))]

    def _keep(self, question: HostFuture, requests: Sequence[Request]) -> None:
        """Keep what the device reads until it has: nobody waits for the answer before."""
        while self._read and (self._read[0][0].done or len(self._read) == MOST):
            self._read.popleft()[0].result()
        self._read.append((question, requests))


class _Table(NamedTuple):
    """Rows of requests that have as many stages each: they are worked on together."""

    stages: int
    requests: tuple[int, ...]  # their numbers
    rows: int
    width: int  # picked tokens of a row, filled up


class _Asked(NamedTuple):
    """Numbers of several shapes, one after the other: float64 leaves whole numbers whole."""

    numbers: Tensor
    parts: list[list[Part]]  # of each table


def _known(numbers: Numbers) -> Callable[[], Numbers]:
    return lambda: numbers


def _device(requests: Sequence[Request]) -> torch.device:
    return requests[0].places[0].reading.logits.device


def _tables(requests: Sequence[Request], picked: Sequence[list[list[int]]]) -> tuple[_Table, ...]:
    alike = defaultdict[int, list[int]](list)
    for at, request in enumerate(requests):
        alike[len(request.stages)].append(at)
    tables = []
    for stages, members in alike.items():
        rows = [row for at in members for row in picked[at]]
        count, width = len(rows), max(map(len, rows))
        if count * width > 1:  # filled up, so that shapes repeat
            width = bucket(width, SOME_PICKS)
            count = count if stages else bucket(count, SOME_ROWS)  # stages have those they have
        tables.append(_Table(stages, tuple(members), count, width))
    return tuple(tables)


def _spans(requests: Sequence[Request]) -> dict[Reading, range]:
    """Of each reading all rows, where they are few: which ones are asked about changes with every
    tick. Of a large one those asked about, and those between."""
    spans: dict[Reading, range] = {}
    for place in (place for request in requests for place in request.places):
        reading, row, every = place.reading, place.row, range(len(place.reading.logits))
        span = spans.get(reading, every if len(every) <= ROWS else range(row, row + 1))
        spans[reading] = range(min(span.start, row), max(span.stop, row + 1))
    return spans


def _numbered(
    requests: Sequence[Request],
    picked: Sequence[list[list[int]]],
    tables: Sequence[_Table],
    spans: Mapping[Reading, range],
) -> Tensor:
    """Of each table where its rows are among those of the spans, and the tokens picked there; still
    on the host, which hands them over in one piece."""
    ends = accumulate(map(len, spans.values()), initial=0)
    firsts = {
        reading: end - span.start for end, (reading, span) in zip(ends, spans.items(), strict=False)
    }
    numbers: list[int] = []
    for table in tables:
        places = [place for at in table.requests for place in requests[at].places]
        missing = table.rows - len(places)
        numbers += [firsts[place.reading] + place.row for place in places] + [0] * missing
        for tokens in (row for at in table.requests for row in picked[at]):
            numbers += tokens + [-1] * (table.width - len(tokens))
        numbers += [-1] * (missing * table.width)
    return torch.tensor(numbers)


def _inputs(
    requests: Sequence[Request], tables: Sequence[_Table], spans: Mapping[Reading, range]
) -> list[Tensor]:
    """What a device works on: parts of readings, then the stages of each table."""
    read = []
    for reading, span in spans.items():
        parts = [getattr(reading, name) for name in _PARTS]
        whole = len(span) == len(reading.logits)
        read += parts if whole else [part[span.start : span.stop] for part in parts]
    stages = [
        requests[at].stages[stage]
        for table in tables
        for stage in range(table.stages)
        for at in table.requests
    ]
    return read + stages


def _ask(spans: int, tables: Sequence[_Table], numbers: Tensor, *inputs: Tensor) -> _Asked:
    """Work out all numbers of all tables."""
    kinds, asked = len(_PARTS), []
    read = [torch.cat(inputs[kind : spans * kinds : kinds]) for kind in range(kinds)]
    stages, later = iter(inputs[spans * kinds :]), numbers
    for table in tables:
        rows, picked, later = later.tensor_split([table.rows, table.rows * (1 + table.width)])
        named = {name: part[rows] for name, part in zip(_PARTS, read, strict=True)}
        nothing = named["logits"].new_empty(0)
        reading = Reading(**named, told=nothing, hidden=nothing)
        left = [torch.cat(list(islice(stages, len(table.requests)))) for _ in range(table.stages)]
        asked.append(asked_of(picked.view(-1, table.width), reading, *left))
    flat = [part.flatten(1).double() for of_one in asked for part in of_one]
    starts = accumulate((part.numel() for part in flat), initial=0)
    places = iter([Part(start, *part.shape) for start, part in zip(starts, flat, strict=False)])
    return _Asked(
        torch.cat([part.flatten() for part in flat]),
        [[next(places) for _ in of_one] for of_one in asked],
    )
