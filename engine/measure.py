"""The numbers of a step's distributions, on the host.

Knows what is read off rows of scores. A CPU reads a row as seldom as it can, and no row that
nothing asks for; a GPU is asked once for everything, because every question waits for an answer.
Refuses to know what the numbers are told as.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.backend import TOP, Reading, entropy, most
from engine.graphs import Graphs, bucket

FEW = 64  # where no more tokens than this are left, they are read instead of the whole row
ROWS = 8  # most rows whose measuring is recorded: it keeps a copy of what it reads
BEYOND = 1e30  # further from 0 than any log-probability

_PARTS = ("logits", "log_probs", "entropy", "varentropy", "top_tokens")  # of a reading

Picks = Sequence[tuple[int, int]]  # (row, token)


class Numbers(NamedTuple):
    """What there is to tell of some rows, each with the tokens to tell of."""

    tokens: list[list[int]]  # (rows, tokens) the picked, the model's best, the best in the end
    log_probs: Tensor  # (rows, tokens, 1 + stages) the model's own, then after each stage
    last: int  # how many of the tokens are there as the best in the end
    raw_entropy: list[float]
    raw_varentropy: list[float]
    final_entropy: list[float]
    kept: list[list[int]]  # (stages, rows) how many tokens were left
    lowest: Tensor  # (stages, rows) the least log-probability kept, where something was cut
    given: list[int]  # (rows,) how many tokens the first stage got
    ranks: list[int]  # of each pick in the model's own order, from 1


class _Final(NamedTuple):
    """What the processors left, row by row."""

    top: Tensor  # (rows, TOP) the most probable tokens, most probable first
    log_normalizer: Tensor  # (rows, 1) what a score is above its log-probability
    entropy: Tensor  # (rows,)


class Measuring:
    """Measures for all who read one model; on a GPU what is asked for again is recorded."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._graphs: Graphs[_Asked] | None = None
        self._stream: Any = None

    def measured(
        self, reading: Reading, stages: Sequence[Tensor], picks: Picks, ready: Any = None
    ) -> Callable[[], Numbers]:
        """The numbers of the rows that a reading and the scores after each stage, (rows, vocab),
        have for some picked tokens.

        A GPU is asked at once, beside what it is busy with; to call the answer waits for it.
        """
        if reading.logits.device.type == "cpu":
            return lambda: _in_turn(reading, stages, picks)
        return _at_once(reading, stages, picks, self, ready)

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

    def ask(
        self, picked: Tensor, reading: Reading, stages: Sequence[Tensor], ready: Any
    ) -> Callable[[], list[Tensor]]:
        """All numbers of some rows, worked out on their device; to call the answer waits for them
        on the host."""
        device = reading.logits.device
        parts = [getattr(reading, name) for name in _PARTS]
        with self._lock, self.aside(ready):
            self._graphs = self._graphs or Graphs(device)
            if len(picked) <= ROWS:
                shape = (picked.shape, len(stages), reading.logits.shape)
                asked = self._graphs.play(_ask, shape, picked, *parts, *stages)
            else:
                asked = _ask(picked.to(device), *parts, *stages)
            told, shapes = asked.numbers.to("cpu", non_blocking=True), asked.shapes
            there = torch.cuda.current_stream().record_event() if ready is not None else None

        def answer() -> list[Tensor]:
            if there is not None:
                there.synchronize()
            ends = list(accumulate(map(math.prod, shapes)))
            pieces = zip(told.tensor_split(ends[:-1]), shapes, strict=True)
            return [piece.view(shape) for piece, shape in pieces]

        return answer


class _Asked(NamedTuple):
    """Numbers of several shapes, one after the other: float64 leaves whole numbers whole."""

    numbers: Tensor
    shapes: list[torch.Size]


def _ask(picked: Tensor, *parts: Tensor) -> _Asked:
    """Work out all numbers of some rows; the parts are those of a reading and the stages."""
    own = dict(zip(_PARTS, parts, strict=False))
    reading = Reading(**own, hidden=parts[0].new_empty(0))
    asked = asked_of(picked, reading, *parts[len(_PARTS) :])
    flat = torch.cat([part.double().flatten() for part in asked])
    return _Asked(flat, [part.shape for part in asked])


def _in_turn(reading: Reading, stages: Sequence[Tensor], picks: Picks) -> Numbers:
    """Look at what there is to look at, one thing after the other."""
    before = _before(reading, stages)
    given, kept, lowest = _cuts(stages, before)
    final = _final(stages[-1], few=max(kept[-1]) <= FEW < stages[-1].shape[-1]) if stages else None
    tokens = _tokens(reading, final, torch.tensor(_picked(reading, picks)))
    raw_entropy, raw_varentropy = torch.stack([reading.entropy, reading.varentropy]).tolist()
    return Numbers(
        tokens=tokens.tolist(),
        log_probs=_log_probs(before, stages, final, tokens),
        last=final.top.shape[-1] if final else 0,
        raw_entropy=raw_entropy,
        raw_varentropy=raw_varentropy,
        final_entropy=final.entropy.tolist() if final else raw_entropy,
        kept=kept,
        lowest=lowest,
        given=given,
        ranks=_ranks(reading, picks),
    )


def _at_once(
    reading: Reading, stages: Sequence[Tensor], picks: Picks, measuring: Measuring, ready: Any
) -> Callable[[], Numbers]:
    """Have the device work out all there may be to tell, and ask it once."""
    picked = _picked(reading, picks)
    wider = bucket(len(picked[0])) - len(picked[0])  # so that shapes repeat
    filled = torch.tensor([tokens + [-1] * wider for tokens in picked])
    asked = measuring.ask(filled, reading, stages, ready)
    last = min(TOP, stages[-1].shape[-1]) if stages else 0
    return lambda: _numbers(asked(), picks, last)


def _numbers(told: Sequence[Tensor], picks: Picks, last: int) -> Numbers:
    tokens, log_probs, spread, higher, *of_stages = told
    raw_entropy, raw_varentropy = spread.tolist()
    alive, lowest, final_entropy = of_stages or (None, None, None)
    given, *kept = alive.int().tolist() if alive is not None else [[]]
    ids = tokens.long().tolist()
    return Numbers(
        tokens=ids,
        log_probs=log_probs.float(),
        last=last,
        raw_entropy=raw_entropy,
        raw_varentropy=raw_varentropy,
        final_entropy=raw_entropy if final_entropy is None else final_entropy.tolist(),
        kept=kept,
        lowest=spread.new_empty(0) if lowest is None else lowest.float(),
        given=given,
        ranks=_ranked(picks, ids, higher.int().tolist()),
    )


def _ranked(picks: Picks, tokens: list[list[int]], higher: list[list[int]]) -> list[int]:
    """Each pick's place: among a row's most probable tokens, else behind all that are higher."""
    columns, ranks = [0] * len(tokens), []
    for row, token in picks:  # a row's picks are its first columns, in order
        width = len(higher[row])
        best = tokens[row][width : width + TOP]
        ranks.append(1 + (best.index(token) if token in best else higher[row][columns[row]]))
        columns[row] += 1
    return ranks


def asked_of(picked: Tensor, reading: Reading, *stages: Tensor) -> list[Tensor]:
    """All numbers of some rows, on their device."""
    before = _before(reading, stages)
    final = _final(stages[-1], few=False) if stages else None
    tokens = _tokens(reading, final, picked)
    own = reading.logits.gather(-1, tokens[:, : picked.shape[-1]])  # (rows, picked)
    asked = [
        tokens,
        _log_probs(before, stages, final, tokens),
        torch.stack([reading.entropy, reading.varentropy]),
        (reading.logits[:, None] > own[:, :, None]).sum(-1),
    ]
    if final:
        alive = [before[0] > -torch.inf, *(scores > -torch.inf for scores in stages)]
        lowest = [
            _lowest(given, had & left)
            for given, had, left in zip(before, alive[:-1], alive[1:], strict=True)
        ]
        asked += [torch.stack(alive).sum(-1), torch.stack(lowest), final.entropy]
    return asked


def _before(reading: Reading, stages: Sequence[Tensor]) -> list[Tensor]:
    """The log-probabilities each stage was given, (rows, vocab); without any, the model's own."""
    return [reading.log_probs, *(scores.log_softmax(-1) for scores in stages[:-1])]


def _cuts(
    stages: Sequence[Tensor], before: Sequence[Tensor]
) -> tuple[list[int], list[list[int]], Tensor]:
    """Count what each stage left; where it cut something, find the least probable token it kept."""
    if not stages:
        return [], [], torch.empty(0)
    alive = [before[0] > -torch.inf, *(scores > -torch.inf for scores in stages)]
    first, *kept = torch.stack([mask.sum(-1, dtype=torch.int32) for mask in alive]).tolist()
    lowest, given = [], first
    for stage, after in enumerate(kept):
        cut = after != given
        still = alive[stage] & alive[stage + 1]
        lowest.append(_lowest(before[stage], still) if cut else torch.ones(len(after)))
        given = after
    return first, kept, torch.stack(lowest)


def _lowest(log_probs: Tensor, kept: Tensor) -> Tensor:
    """The smallest log-probability of a kept token in each row; above 0 where there is none."""
    # To lift the others out of the way takes a tenth of the time that leaving them out does.
    others = (~kept).view(torch.uint8)
    return log_probs.clamp(min=-BEYOND).add_(others, alpha=2 * BEYOND).amin(-1).clamp(max=1)


def _final(scores: Tensor, *, few: bool) -> _Final:
    """Read what the processors left: the few tokens there are, or the whole row."""
    top = most(scores, FEW if few else TOP)
    values = scores.gather(-1, top)
    log_probs = (values if few else scores).log_softmax(-1)
    best = log_probs[:, :1] if few else log_probs.gather(-1, top[:, :1])
    return _Final(top[:, :TOP], values[:, :1] - best, entropy(log_probs))


def _picked(reading: Reading, picks: Picks) -> list[list[int]]:
    """The picked tokens of every row, filled up with -1."""
    picked: list[list[int]] = [[] for _ in range(len(reading.logits))]
    for row, token in picks:
        picked[row].append(token)
    widest = max(map(len, picked))
    return [ids + [-1] * (widest - len(ids)) for ids in picked]


def _tokens(reading: Reading, final: _Final | None, picked: Tensor) -> Tensor:
    """For every row the most probable tokens, before and after the processors, and its picks."""
    # Rows are filled up with a token that is told of anyway.
    filled = torch.where(picked < 0, reading.top_tokens[:, :1], picked)
    return torch.cat([filled, reading.top_tokens, *([final.top] if final else [])], dim=-1)


def _log_probs(
    before: Sequence[Tensor], stages: Sequence[Tensor], final: _Final | None, tokens: Tensor
) -> Tensor:
    """Log-probabilities of some tokens: the model's own, then after each stage."""
    told = [log_probs.gather(-1, tokens) for log_probs in before]
    if final:
        told.append(stages[-1].gather(-1, tokens) - final.log_normalizer)
    return torch.stack(told, dim=-1)


def _ranks(reading: Reading, picks: Picks) -> list[int]:
    """Each picked token's place in the model's own order, from 1."""
    tops = reading.top_tokens.tolist()
    ranks = [tops[row].index(token) + 1 if token in tops[row] else 0 for row, token in picks]
    below = [index for index, rank in enumerate(ranks) if rank == 0]
    if below:
        rows, tokens = torch.tensor([picks[index] for index in below]).unbind(-1)
        logits = reading.logits[rows]
        higher = (logits > logits.gather(-1, tokens[:, None])).sum(-1).tolist()
        for index, count in zip(below, higher, strict=True):
            ranks[index] = count + 1
    return ranks
