"""The interface of a backend, and the outputs of a model: logits and what is computed from them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from engine.accel.host_future import HostFuture
from engine.trie.cell import Cell

BLOCK = 128  # tokens of a block in the search for the most probable ones
TOP = 10  # most probable tokens recorded of a distribution, before and after the processors


class Best(NamedTuple):
    """The statistics of several rows on the host: the most probable tokens come first."""

    tokens: list[list[int]]
    log_probs: list[list[float]]
    entropy: list[float]
    varentropy: list[float]

    @staticmethod
    def of(summary: Tensor) -> Best:
        """Unpack (rows, 2, TOP + 1): tokens and log-probabilities, then entropy and varentropy.
        float64 holds token ids exactly."""
        entropy, varentropy = summary[:, :, -1].T.tolist()
        return Best(
            summary[:, 0, :-1].long().tolist(), summary[:, 1, :-1].tolist(), entropy, varentropy
        )

    def rows(self, at: Sequence[int]) -> Best:
        """The statistics of some of the rows."""
        return Best(
            [self.tokens[row] for row in at],
            [self.log_probs[row] for row in at],
            [self.entropy[row] for row in at],
            [self.varentropy[row] for row in at],
        )


@dataclass(frozen=True, eq=False)
class NodeOutput:
    """The model's output at several cells, with the statistics that every trace records.

    Computed on the model's device as part of the forward pass; nothing is copied to the host.
    """

    logits: Tensor  # (rows, vocab) float32
    log_probs: Tensor  # (rows, vocab)
    entropy: Tensor  # (rows,) nats
    varentropy: Tensor  # (rows,) the variance of the surprisal, square nats
    top_tokens: Tensor  # (rows, TOP) most probable first
    summary: Tensor  # (rows, 2, TOP + 1) for the host, see `Best`
    hidden: Tensor  # (rows, 1 + layers, width) the embedding, then each layer's output

    @staticmethod
    def of(logits: Tensor, hidden: Tensor | None = None, width: int | None = None) -> NodeOutput:
        """Compute the statistics of logits, (rows, vocab), cut or padded to ``width`` tokens.

        An early exit has no hidden states.
        """
        logits = logits.float()
        if width is not None and width != logits.shape[-1]:
            logits = pad(logits, (0, width - logits.shape[-1]), value=-torch.inf)
        log_probs = logits.log_softmax(-1)
        hidden = logits.new_empty(len(logits), 0, 0) if hidden is None else hidden
        spread, top = entropy_and_variance(log_probs), most(logits)
        of_top = torch.stack([top.double(), log_probs.gather(-1, top).double()], dim=1)
        summary = torch.cat([of_top, torch.stack(spread, dim=1).double()[..., None]], dim=-1)
        return NodeOutput(logits, log_probs, *spread, top, summary, hidden)

    @cached_property
    def host_summary(self) -> HostFuture:
        """The copy of the statistics to the host, started once."""
        return HostFuture(self.summary)

    @cached_property
    def best(self) -> Best:
        """The statistics on the host; waits for the copy."""
        return Best.of(self.host_summary.result())

    def rows(self, at: Tensor) -> NodeOutput:
        """The output at some of the rows."""
        return NodeOutput(*(part[at] for part in self._parts()))

    def copy(self) -> NodeOutput:
        """A copy."""
        return NodeOutput(*(part.clone() for part in self._parts()))

    def _parts(self) -> list[Tensor]:
        return [getattr(self, name) for name in _PARTS]


_PARTS = [part.name for part in fields(NodeOutput)]


@dataclass(frozen=True, eq=False)
class OutputRow:
    """The model's output at one cell: a row of a `NodeOutput`, which it keeps alive."""

    output: NodeOutput
    row: int


class PendingCells:
    """Slots reserved for cells that the device evaluates before the host knows their tokens.

    Slots whose cells are never created are released with this object.
    """

    output: NodeOutput  # the output at each, once they are evaluated

    def __init__(self, slots: Sequence[int], released: deque[int]) -> None:
        self.slots = slots
        self._left = dict(enumerate(slots))  # by row
        self._released = released

    def create(self, row: int, parent: Cell, token: int) -> tuple[Cell, OutputRow]:
        """Create the cell of a row, now that its token is known; returns it and its output."""
        return parent.add_evaluated_child(token, self._left.pop(row)), OutputRow(self.output, row)

    def __del__(self) -> None:
        self._released.extend(self._left.values())


def gather(output_rows: Sequence[OutputRow]) -> NodeOutput:
    """Gather several rows into one output, in order."""
    return NodeOutput(*parts(output_rows, *_PARTS))


def parts(output_rows: Sequence[OutputRow], *names: str) -> list[Tensor]:
    """Some tensors of the gathered output: gathering all of them takes longer."""
    first = output_rows[0].output
    if all(output_row.output is first for output_row in output_rows):
        at = index([output_row.row for output_row in output_rows])
        if not isinstance(at, slice):
            at = torch.tensor(at, device=first.logits.device)
        return [getattr(first, name)[at] for name in names]
    return [
        torch.stack(
            [getattr(output_row.output, name)[output_row.row] for output_row in output_rows]
        )
        for name in names
    ]


def index(rows: list[int]) -> Any:
    """An index for some rows of a tensor: for adjacent rows a slice, which copies nothing."""
    start, end = rows[0], rows[0] + len(rows)
    return slice(start, end) if rows == list(range(start, end)) else rows


def after_layers(hidden: Tensor, layers: Sequence[int]) -> Tensor:
    """The hidden states after some layers, of (rows, 1 + layers, width); -1 is the last layer."""
    # One by one: an index list would have to be copied to the GPU.
    return torch.stack([hidden[:, layer] for layer in layers], dim=1)


def most(scores: Tensor, count: int = TOP) -> Tensor:
    """The tokens with the highest scores in each row, (rows, count), highest first."""
    rows, size = scores.shape
    if size % BLOCK or size < count * BLOCK:
        return scores.topk(min(count, size), dim=-1).indices
    # They are in the blocks with the highest maxima: several times faster than topk of a row.
    blocks = scores.view(rows, size // BLOCK, BLOCK)
    best = blocks.amax(-1).topk(count, dim=-1).indices  # (rows, count)
    inside = blocks.gather(1, best[:, :, None].expand(-1, -1, BLOCK)).flatten(1)
    at = inside.topk(count, dim=-1).indices
    return best.gather(-1, at // BLOCK) * BLOCK + at % BLOCK


def entropy(log_probs: Tensor) -> Tensor:
    """Entropy in nats of rows of log-probabilities; cut tokens (-inf) count as 0."""
    # For a cut token p log p is 0 times infinity, which is NaN and left out of the sum.
    return -_probs(log_probs).mul_(log_probs).nansum(-1)


def entropy_and_variance(log_probs: Tensor) -> tuple[Tensor, Tensor]:
    """Entropy in nats of rows of log-probabilities, and the variance of their surprisal."""
    probs = _probs(log_probs)
    mean = -(probs * log_probs).nansum(-1)
    # Around the mean: a difference of squares would cancel where the model is confident.
    return mean, (log_probs + mean[..., None]).square_().mul_(probs).nansum(-1)


def _probs(log_probs: Tensor) -> Tensor:
    # Not `exp`, which takes a CPU forty times as long for results that are denormal.
    return log_probs.softmax(-1)


class Backend(Protocol):
    """A way to run a model over the cells of a trie."""

    def top(self, context: Any) -> Cell:
        """The top of the trie for prompts under ``context`` (None for decoder-only models)."""

    def evaluate(self, cells: Sequence[Cell]) -> dict[Cell, OutputRow]:
        """The model's output after each cell; missing ancestors are evaluated first."""

    def states(self, cell: Cell) -> Tensor:
        """The last hidden state at every token down to an evaluated cell: (tokens, width)."""

    @property
    def used(self) -> int:
        """Slots of living cells."""

    def release_memory(self) -> None:
        """Release memory at the end of a comparison."""
