"""Batches the statistics of all runs: on a GPU one graph per tick, beside the model's work.

Each separate request to a GPU would have to be waited for, and each kernel launch takes the host as
long as a small kernel runs. So everything that may be recorded of all rows is computed in one
captured graph on its own stream, and copied to the host in one piece. On a CPU requests are
computed one by one.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import accumulate, islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.accel.graphs import Graphs, bucket
from engine.accel.host_future import HostFuture
from engine.trace.statistics import (
    Picks,
    RowProbabilities,
    Statistics,
    StatisticsRequest,
    compute,
    compute_tables,
    picked_by_row,
    picked_rows,
)
from engine.trie.backend import TOP, NodeOutput

ROWS = 64  # most rows that a captured graph computes: it keeps a copy of its inputs
CAPTURED = 16  # most graphs, for the same reason
PENDING = 8  # most pending copies: their inputs must stay alive
ROW_BUCKET, PICK_BUCKET = 8, 16  # sizes are padded to these, because capturing a shape takes long

_FIELDS = ("logits", "log_probs", "entropy", "varentropy", "top_tokens")  # of a `NodeOutput`


class BatchedStatistics:
    """Computes the statistics of all runs of one model."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._graphs: Graphs[_Batch] | None = None
        self._stream: Any = None
        self._pending: deque[tuple[HostFuture, Sequence[StatisticsRequest]]] = deque()

    def compute(
        self, requests: Sequence[StatisticsRequest], ready: Any = None
    ) -> list[Callable[[], Statistics]]:
        """The statistics of each request, as functions that wait for the result.

        A GPU starts at once, beside its other work; ``ready`` is the CUDA event after which the
        rows are complete. The functions do not keep the rows alive.
        """
        if _device(requests).type == "cpu":
            return [partial(_identity, compute(request)) for request in requests]
        return self.compute_in_one_graph(requests, ready)

    @contextmanager
    def side_stream(self, ready: Any) -> Iterator[None]:
        """Run GPU work beside the model's, after the event ``ready``; the caller keeps the inputs
        alive until it is done. Without an event (on a CPU) this does nothing."""
        if ready is None:
            yield
            return
        self._stream = self._stream or torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch
        self._stream.wait_event(ready)
        with torch.cuda.stream(self._stream):
            yield

    def compute_in_one_graph(
        self, requests: Sequence[StatisticsRequest], ready: Any
    ) -> list[Callable[[], Statistics]]:
        """Compute everything that may be recorded in one graph, and copy it to the host at once."""
        device = _device(requests)
        picked = [picked_by_row(request) for request in requests]
        tables, spans = _tables(requests, picked), _spans(requests)
        work = partial(_compute_batch, len(spans), tables)
        inputs = [_indices(requests, picked, tables, spans), *_inputs(requests, tables, spans)]
        with self._lock, self.side_stream(ready):
            self._graphs = self._graphs or Graphs(device, most=CAPTURED)
            if sum(map(len, spans.values())) <= ROWS:
                shape = (tables, *(tensor.shape for tensor in inputs))
                batch = self._graphs.play(work, shape, *inputs)
            else:
                batch = work(*(tensor.to(device) for tensor in inputs))
            numbers = _HostNumbers(copy := HostFuture(batch.numbers))
            self._keep_alive(copy, requests)
        results: dict[int, Callable[[], Statistics]] = {}
        for table, blocks in zip(tables, batch.blocks, strict=True):
            starts = accumulate((len(requests[at].output_rows) for at in table.requests), initial=0)
            for at, start in zip(table.requests, starts, strict=False):
                rows = range(start, start + len(requests[at].output_rows))
                picks = requests[at].picks
                results[at] = partial(_unpack, numbers, blocks, rows, picks, table.drawn)
        return [results[at] for at in range(len(requests))]

    def _keep_alive(self, copy: HostFuture, requests: Sequence[StatisticsRequest]) -> None:
        """Hold the inputs until the GPU has read them."""
        while self._pending and (self._pending[0][0].done or len(self._pending) == PENDING):
            self._pending.popleft()[0].result()
        self._pending.append((copy, requests))


class _Table(NamedTuple):
    """The rows of all requests with one number of stages, and with or without a draw: they are
    computed together."""

    stages: int
    drawn: bool
    requests: tuple[int, ...]  # their indices
    rows: int
    width: int  # picked tokens per row, padded


class _Block(NamedTuple):
    """Where a table of numbers lies in a flat list."""

    start: int
    rows: int
    width: int

    def row(self, numbers: list[float], at: int) -> list[float]:
        """One row."""
        start = self.start + at * self.width
        return numbers[start : start + self.width]

    def every(self, numbers: list[float], some: slice = slice(None)) -> list[list[float]]:
        """All rows, or some."""
        return [self.row(numbers, at) for at in range(self.rows)[some]]


class _Batch(NamedTuple):
    """Tables of several shapes in one flat tensor: float64 represents token ids exactly."""

    numbers: Tensor
    blocks: list[list[_Block]]  # of each table


class _HostNumbers:
    """The numbers of a batch, once they are on the host."""

    def __init__(self, copy: HostFuture) -> None:
        self._copy = copy

    # As lists: reading one element of a tensor takes as long as reading a hundred of a list.

    @cached_property
    def numbers(self) -> list[float]:
        """All of them."""
        return list(self._copy.result().tolist())

    @cached_property
    def probs(self) -> list[float]:
        """The exponential of each: the probabilities where these are log-probabilities."""
        return list(self._copy.result().float().exp().tolist())


def _identity(statistics: Statistics) -> Statistics:
    return statistics


def _device(requests: Sequence[StatisticsRequest]) -> torch.device:
    return requests[0].output_rows[0].output.logits.device


def _tables(
    requests: Sequence[StatisticsRequest], picked: Sequence[list[list[int]]]
) -> tuple[_Table, ...]:
    by_kind = defaultdict[tuple[int, bool], list[int]](list)
    for at, request in enumerate(requests):
        by_kind[len(request.stages), request.noise is not None].append(at)
    tables = []
    for (stages, drawn), members in by_kind.items():
        rows = [row for at in members for row in picked[at]]
        count, width = len(rows), max(map(len, rows))
        if count * width > 1:  # padded, so that shapes repeat
            width = bucket(width, PICK_BUCKET)
            if not stages and not drawn:  # those tensors are not padded
                count = bucket(count, ROW_BUCKET)
        tables.append(_Table(stages, drawn, tuple(members), count, width))
    return tuple(tables)


def _spans(requests: Sequence[StatisticsRequest]) -> dict[NodeOutput, range]:
    """The rows of each output to take along: all of a small one, because the requested rows change
    with every tick; of a large one those requested and the rows between them."""
    spans: dict[NodeOutput, range] = {}
    for one in (one for request in requests for one in request.output_rows):
        output, row = one.output, one.row
        every = range(len(output.logits))
        span = spans.get(output, every if len(every) <= ROWS else range(row, row + 1))
        spans[output] = range(min(span.start, row), max(span.stop, row + 1))
    return spans


def _indices(
    requests: Sequence[StatisticsRequest],
    picked: Sequence[list[list[int]]],
    tables: Sequence[_Table],
    spans: Mapping[NodeOutput, range],
) -> Tensor:
    """For each table the indices of its rows among the spans, then the tokens picked there, as one
    tensor on the host."""
    ends = accumulate(map(len, spans.values()), initial=0)
    firsts = {
        output: end - span.start for end, (output, span) in zip(ends, spans.items(), strict=False)
    }
    numbers: list[int] = []
    for table in tables:
        rows = [row for at in table.requests for row in requests[at].output_rows]
        missing = table.rows - len(rows)
        numbers += [firsts[row.output] + row.row for row in rows] + [0] * missing
        for tokens in (row for at in table.requests for row in picked[at]):
            numbers += tokens + [-1] * (table.width - len(tokens))
        numbers += [-1] * (missing * table.width)
    return torch.tensor(numbers)


def _inputs(
    requests: Sequence[StatisticsRequest],
    tables: Sequence[_Table],
    spans: Mapping[NodeOutput, range],
) -> list[Tensor]:
    """The tensors to compute from: the fields of each output, then the stages and the noise of
    each table."""
    read = []
    for output, span in spans.items():
        fields = [getattr(output, name) for name in _FIELDS]
        whole = len(span) == len(output.logits)
        read += fields if whole else [field[span.start : span.stop] for field in fields]
    for table in tables:
        own = [requests[at] for at in table.requests]
        read += [request.stages[stage] for stage in range(table.stages) for request in own]
        read += [request.noise for request in own if request.noise is not None]
    return read


def _compute_batch(
    spans: int, tables: Sequence[_Table], indices: Tensor, *inputs: Tensor
) -> _Batch:
    """All statistics of all tables."""
    count, computed = len(_FIELDS), []
    fields = [torch.cat(inputs[field : spans * count : count]) for field in range(count)]
    given, rest = iter(inputs[spans * count :]), indices
    for table in tables:
        rows, picked, rest = rest.tensor_split([table.rows, table.rows * (1 + table.width)])
        named = {name: field[rows] for name, field in zip(_FIELDS, fields, strict=True)}
        nothing = named["logits"].new_empty(0)
        output = NodeOutput(**named, summary=nothing, hidden=nothing)
        every = [
            torch.cat(list(islice(given, len(table.requests))))
            for _ in range(table.stages + table.drawn)
        ]
        noise = every.pop() if table.drawn else None
        tokens = picked.view(-1, table.width)
        computed.append(compute_tables(tokens, output, *every, noise=noise))
    flat = [part.flatten(1).double() for parts in computed for part in parts]
    starts = accumulate((part.numel() for part in flat), initial=0)
    blocks = iter([_Block(start, *part.shape) for start, part in zip(starts, flat, strict=False)])
    return _Batch(
        torch.cat([part.flatten() for part in flat]),
        [[next(blocks) for _ in parts] for parts in computed],
    )


def _unpack(
    host: _HostNumbers, blocks: Sequence[_Block], rows: range, picks: Picks, drawn: bool
) -> Statistics:
    """The statistics of one request, which has some of a table's rows."""
    tokens, log_probs, spread, higher, *of_stages = blocks[drawn:]
    own = slice(rows.start, rows.stop)
    raw_entropy, raw_varentropy = (values[own] for values in spread.every(host.numbers))
    found = {
        row: _row_probabilities(host, tokens, log_probs, higher.width, rows[row])
        for row in picked_rows(picks)
    }
    if drawn:
        noise = blocks[0]
        for row in found:
            found[row] = found[row]._replace(noise=noise.row(host.numbers, rows[row]))
    statistics = Statistics(
        rows=found,
        final_top=0,
        raw_entropy=raw_entropy,
        raw_varentropy=raw_varentropy,
        final_entropy=raw_entropy,
        kept=[],
        lowest=[],
        given=[],
        ranks=_ranks(picks, found, higher.every(host.numbers, own)),
    )
    if not of_stages:
        return statistics
    alive, lowest, final_entropy = of_stages
    given, *kept = (list(map(int, left[own])) for left in alive.every(host.numbers))
    return statistics._replace(
        final_top=(tokens.width - higher.width) // 2,  # as many as the model's most probable
        final_entropy=final_entropy.row(host.numbers, 0)[own],
        kept=kept,
        lowest=[values[own] for values in lowest.every(host.probs)],
        given=given,
    )


def _row_probabilities(
    host: _HostNumbers, tokens: _Block, log_probs: _Block, picked: int, row: int
) -> RowProbabilities:
    """One row, whose first ``picked`` tokens are the picked ones."""
    per_token = log_probs.width // tokens.width
    own, probs = log_probs.row(host.numbers, row), log_probs.row(host.probs, row)
    ids = list(map(int, tokens.row(host.numbers, row)))
    return RowProbabilities(ids, own[: picked * per_token], probs)


def _ranks(picks: Picks, rows: dict[int, RowProbabilities], higher: list[list[float]]) -> list[int]:
    """Each pick's rank: its index among the most probable tokens, else the number of more probable
    tokens, plus 1."""
    columns, ranks = dict.fromkeys(rows, 0), []
    for row, token in picks:  # a row's picks are its first columns, in order
        width = len(higher[row])
        best = rows[row].tokens[width : width + TOP]
        before = best.index(token) if token in best else int(higher[row][columns[row]])
        ranks.append(1 + before)
        columns[row] += 1
    return ranks
