"""Nodes of the token trie as a run sees them, and the prompt they start from."""

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
from engine.trie.backend import OutputRow
from engine.trie.cell import Cell
from engine.trie.evaluator import Evaluator

UNSHARED = 64  # most tokens of a text that it does not share with the text it grew from

# A node and the tokens that continue it. A strategy yields these; the loop sends back the evaluated
# node at the end of each.
Continuation = tuple["Node", *tuple[int, ...]]

# Finds the recorded step for a token after another step, in one of a run's trees.
StepAt = Callable[[int | None, int, int], int | None]


class Text(Sequence[int]):
    """The tokens of a text. It shares nearly all of them with the text it grew from: every step
    makes several texts, each one token longer, and most are never read."""

    __slots__ = ("_head", "_tail")

    def __init__(self, head: tuple[int, ...] = (), tail: tuple[int, ...] = ()) -> None:
        self._head, self._tail = (head, tail) if len(tail) < UNSHARED else ((*head, *tail), ())

    def extended(self, tokens: Sequence[int]) -> Text:
        """The text with more tokens at its end."""
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
    """An evaluated position in the trie. Holding a node keeps its branch of the trie alive."""

    evaluator: Evaluator  # of the model whose trie it is in
    cell: Cell
    output_row: OutputRow  # the model's output there
    text: Text  # the tokens from the start of the prompt to here
    step: int | None = None  # the last recorded step on the way here; None at the root
    unrecorded: tuple[int, ...] = ()  # the tokens after that step
    tree: int = 0  # a run may record several trees; equal texts in two trees are different steps

    @cached_property
    def ids(self) -> Tensor:
        """The tokens of the text on the model's device, (length,)."""
        device = self.output_row.output.logits.device
        return torch.tensor(tuple(self.text), dtype=torch.long, device=device)

    def descendant(
        self, tokens: Sequence[int], cell: Cell, output_row: OutputRow, step_at: StepAt
    ) -> Node:
        """The node some tokens further."""
        step, unrecorded = self.step, [*self.unrecorded, *tokens]
        while unrecorded and (found := step_at(step, unrecorded[0], self.tree)) is not None:
            step = found
            unrecorded.pop(0)
        text = self.text.extended(tokens)
        return Node(self.evaluator, cell, output_row, text, step, tuple(unrecorded), self.tree)

    def padded(self, token: int) -> Node:
        """The same position with a padding token: the text of an ended row, as processors see
        it."""
        return replace(self, text=self.text.extended([token]))


class Pick(NamedTuple):
    """A token to record, chosen or not, with the strategy's own numbers."""

    node: Node
    token: int
    event: str = "chosen"
    notes: Mapping[str, Any] = MappingProxyType({})
    brief: bool = False  # record it without the distribution it was picked from


@dataclass(frozen=True, eq=False)
class Source:
    """A prompt and the model that reads it."""

    model: Model
    evaluator: Evaluator
    prompt: Prompt

    def evaluate_prompt(self) -> int:
        """Evaluate the prompt unless that has been done; returns the number of tokens evaluated."""
        return self.evaluator.evaluate_prompt(self.prompt)

    @property
    def root(self) -> Node:
        """The node at the end of the prompt, once that is evaluated."""
        assert self.prompt.root is not None, "evaluate_prompt comes before root"
        cell, output_row = self.prompt.root
        return Node(
            self.evaluator, cell, output_row, Text((*self.prompt.padding, *self.prompt.start))
        )
