"""Places in tries, as runs see them: an evaluated node, what is picked there, and the prompt that
texts start from.

Knows whose trie a node is in. Refuses to know what is decided there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor

from engine.models.model import Model
from engine.prompt import Prompt
from engine.trie.backend import Place
from engine.trie.cell import Cell
from engine.trie.evaluator import Evaluator

OWN = 64  # tokens of a text that it may have for itself

# A node and the tokens to go on with from there; the answer is the node at their end.
Ask = tuple["Node", *tuple[int, ...]]

# The step that was told of behind another one for a token, in one of a run's trees, if one was.
StepAt = Callable[[int | None, int, int], int | None]


class Text(Sequence[int]):
    """The tokens of a text, nearly all of them shared with the texts it grew from: every tick makes
    a few, each one token longer, and nobody looks into most of them."""

    __slots__ = ("_head", "_tail")

    def __init__(self, head: tuple[int, ...] = (), tail: tuple[int, ...] = ()) -> None:
        self._head, self._tail = (head, tail) if len(tail) < OWN else ((*head, *tail), ())

    def longer(self, tokens: Sequence[int]) -> Text:
        """The text with some more tokens."""
        return Text(self._head, (*self._tail, *tokens))

    def __len__(self) -> int:
        return len(self._head) + len(self._tail)

    def __iter__(self) -> Iterator[int]:
        return chain(self._head, self._tail)

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[int, ...]: ...
    def __getitem__(self, at: int | slice) -> int | tuple[int, ...]:
        return tuple(self)[at]


@dataclass(frozen=True, eq=False)
class Node:
    """An evaluated place in the trie, as one run sees it."""

    evaluator: Evaluator  # whose trie it is in
    cell: Cell
    place: Place  # what the model says after it
    text: Text  # the tokens from the start of the prompt to here
    step: int | None = None  # the run's last step on the way here; None at the root
    untold: tuple[int, ...] = ()  # the tokens after that step, not told of when they were asked for
    tree: int = 0  # which of the run's trees it grows in; each tells of the same text as its own

    @cached_property
    def ids(self) -> Tensor:
        """The same tokens where the model's scores are, (length,): only processors want them."""
        device = self.place.reading.logits.device
        return torch.tensor(tuple(self.text), dtype=torch.long, device=device)

    def below(self, tokens: Sequence[int], cell: Cell, place: Place, step_at: StepAt) -> Node:
        """The node some tokens further, with the last step that was told of on the way."""
        step, untold = self.step, [*self.untold, *tokens]
        while untold and (told := step_at(step, untold[0], self.tree)) is not None:
            step = told
            untold.pop(0)
        text = self.text.longer(tokens)
        return Node(self.evaluator, cell, place, text, step, tuple(untold), self.tree)

    def padded(self, token: int) -> Node:
        """The same place one token longer: what an ended row looks like to processors."""
        return replace(self, text=self.text.longer([token]))


class Pick(NamedTuple):
    """A token the trace is told about, taken or turned down, with the strategy's own numbers."""

    node: Node
    token: int
    event: str = "chosen"
    notes: Mapping[str, Any] = MappingProxyType({})
    brief: bool = False  # told without what else could have stood there: nobody chose there


@dataclass(frozen=True, eq=False)
class Source:
    """A prompt and the model that reads it."""

    model: Model
    evaluator: Evaluator
    prompt: Prompt

    def begin(self) -> int:
        """Have the prompt evaluated, unless it is; gives how many tokens that took."""
        return self.evaluator.begin(self.prompt)

    @property
    def root(self) -> Node:
        """Where the prompt ends, once it is evaluated."""
        assert self.prompt.root is not None, "begin comes before root"
        cell, place = self.prompt.root
        return Node(self.evaluator, cell, place, Text((*self.prompt.padding, *self.prompt.start)))
