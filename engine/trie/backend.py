"""What the engine asks of a model, whichever way the model is run.

Knows the contract of a backend and how logits are read: log-probabilities, entropy, the most
probable tokens. Refuses to know caches and masks: those are the backends' own.
"""

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

BLOCK = 128  # tokens looked at together when the most probable ones are sought
TOP = 10  # how many candidates a distribution remembers, before and after the processors


class Best(NamedTuple):
    """What the host is told of several places: the most probable tokens, most probable first."""

    tokens: list[list[int]]
    log_probs: list[list[float]]
    entropy: list[float]
    varentropy: list[float]

    @staticmethod
    def of(told: Tensor) -> Best:
        """Taken apart: (places, 2, TOP + 1) tokens and log-probabilities, behind them both
        entropies. float64 holds all of them."""
        entropy, varentropy = told[:, :, -1].T.tolist()
        return Best(told[:, 0, :-1].long().tolist(), told[:, 1, :-1].tolist(), entropy, varentropy)

    def rows(self, at: Sequence[int]) -> Best:
        """The same of some of the places."""
        return Best(
            [self.tokens[row] for row in at],
            [self.log_probs[row] for row in at],
            [self.entropy[row] for row in at],
            [self.varentropy[row] for row in at],
        )


@dataclass(frozen=True, eq=False)
class Reading:
    """What the model said at several places, and what every trace needs to know of it.

    Computed on the model's device as part of the forward pass, without a word to the host.
    """

    logits: Tensor  # (places, vocab) float32
    log_probs: Tensor  # (places, vocab)
    entropy: Tensor  # (places,) nats
    varentropy: Tensor  # (places,) the variance of the surprisal, square nats
    top_tokens: Tensor  # (places, TOP) most probable first
    told: Tensor  # (places, 2, TOP + 1) for the host, see `Best`
    hidden: Tensor  # (places, 1 + layers, width) the embedding, then what each layer made of it

    @staticmethod
    def of(logits: Tensor, hidden: Tensor | None = None, width: int | None = None) -> Reading:
        """Read rows of logits, (places, vocab), cut or filled up to ``width`` tokens.

        An early exit has no hidden states to tell of.
        """
        logits = logits.float()
        if width is not None and width != logits.shape[-1]:
            logits = pad(logits, (0, width - logits.shape[-1]), value=-torch.inf)
        log_probs = logits.log_softmax(-1)
        hidden = logits.new_empty(len(logits), 0, 0) if hidden is None else hidden
        spread, top = entropy_and_variance(log_probs), most(logits)
        of_top = torch.stack([top.double(), log_probs.gather(-1, top).double()], dim=1)
        told = torch.cat([of_top, torch.stack(spread, dim=1).double()[..., None]], dim=-1)
        return Reading(logits, log_probs, *spread, top, told, hidden)

    @cached_property
    def asked(self) -> HostFuture:
        """What the host is told, asked for once by all who want to know."""
        return HostFuture(self.told)

    @cached_property
    def best(self) -> Best:
        """That, when it has come."""
        return Best.of(self.asked.result())

    def rows(self, at: Tensor) -> Reading:
        """What was said at some of the places."""
        return Reading(*(part[at] for part in self._parts()))

    def copy(self) -> Reading:
        """The same in memory of its own."""
        return Reading(*(part.clone() for part in self._parts()))

    def _parts(self) -> list[Tensor]:
        return [getattr(self, name) for name in _PARTS]


_PARTS = [part.name for part in fields(Reading)]


@dataclass(frozen=True, eq=False)
class Place:
    """One row of a reading. Whoever holds it keeps the whole reading alive, so hold it briefly."""

    reading: Reading
    row: int


class Unnamed:
    """Cells that a device evaluates before the host knows what they are.

    The positions of those that nobody names go back when this does.
    """

    reading: Reading  # what the model says after each, once it was asked

    def __init__(self, slots: Sequence[int], released: deque[int]) -> None:
        self.slots = slots
        self._left = dict(enumerate(slots))  # by row
        self._released = released

    def name(self, row: int, parent: Cell, token: int) -> tuple[Cell, Place]:
        """The cell of a row, now that it is known."""
        return parent.bear(token, self._left.pop(row)), Place(self.reading, row)

    def __del__(self) -> None:
        self._released.extend(self._left.values())


def gather(places: Sequence[Place]) -> Reading:
    """The reading at each of the places, in order."""
    return Reading(*parts(places, *_PARTS))


def parts(places: Sequence[Place], *names: str) -> list[Tensor]:
    """Some parts of that reading: to take each one takes a while, and who decides needs few."""
    first = places[0].reading
    if all(place.reading is first for place in places):
        at = index([place.row for place in places])
        if not isinstance(at, slice):
            at = torch.tensor(at, device=first.logits.device)
        return [getattr(first, name)[at] for name in names]
    return [
        torch.stack([getattr(place.reading, name)[place.row] for place in places]) for name in names
    ]


def index(rows: list[int]) -> Any:
    """What finds some rows of a tensor: where they lie one after the other, there is nothing to
    copy."""
    start, end = rows[0], rows[0] + len(rows)
    return slice(start, end) if rows == list(range(start, end)) else rows


def after_layers(hidden: Tensor, layers: Sequence[int]) -> Tensor:
    """Of hidden states, (places, 1 + layers, width), those after some layers; -1 is the last."""
    # One by one: a GPU would have to be sent a list of them.
    return torch.stack([hidden[:, layer] for layer in layers], dim=1)


def most(scores: Tensor, count: int = TOP) -> Tensor:
    """The tokens with the highest scores in each row, (rows, count), highest first."""
    rows, size = scores.shape
    if size % BLOCK or size < count * BLOCK:
        return scores.topk(min(count, size), dim=-1).indices
    # They are in the blocks with the highest maxima: several times faster than a whole row's topk.
    blocks = scores.view(rows, size // BLOCK, BLOCK)
    best = blocks.amax(-1).topk(count, dim=-1).indices  # (rows, count)
    inside = blocks.gather(1, best[:, :, None].expand(-1, -1, BLOCK)).flatten(1)
    at = inside.topk(count, dim=-1).indices
    return best.gather(-1, at // BLOCK) * BLOCK + at % BLOCK


def highest(scores: Tensor, count: int) -> Tensor:
    """The places of the highest scores in each row, (rows, count), highest first."""
    # Of equal scores a CPU takes those that `generate` takes there.
    return most(scores, count) if scores.device.type == "cuda" else scores.topk(count).indices


def entropy(log_probs: Tensor) -> Tensor:
    """Entropy in nats of rows of log-probabilities; cut tokens (-inf) count as 0."""
    # For a cut token p log p is 0 times infinity, not a number, and left out of the sum.
    return -_probs(log_probs).mul_(log_probs).nansum(-1)


def entropy_and_variance(log_probs: Tensor) -> tuple[Tensor, Tensor]:
    """Entropy in nats of rows of log-probabilities, and the variance of their surprisal."""
    probs = _probs(log_probs)
    mean = -(probs * log_probs).nansum(-1)
    # Around the mean: the difference of two squares would lose what a sure model has of it.
    return mean, (log_probs + mean[..., None]).square_().mul_(probs).nansum(-1)


def _probs(log_probs: Tensor) -> Tensor:
    # Not `exp`, which takes a CPU forty times as long where almost nothing is left of a number.
    return log_probs.softmax(-1)


class Backend(Protocol):
    """A way to run a model over the cells of a trie."""

    def top(self, context: Any) -> Cell:
        """The top of the trie for prompts under ``context`` (None for decoder-only models)."""

    def evaluate(self, cells: Sequence[Cell]) -> dict[Cell, Place]:
        """What the model says after each cell; ancestors are evaluated first where missing."""

    def states(self, cell: Cell) -> Tensor:
        """The last hidden state at every token down to an evaluated cell: (tokens, width)."""

    @property
    def used(self) -> int:
        """Positions that living cells hold on to."""

    def settle(self) -> None:
        """Give back what is not needed, now that a comparison has ended."""
