"""Places in tries, as runs see them: an evaluated node, what is picked there, and the prompt that
texts start from.

Knows whose trie a node is in. Refuses to know what is decided there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.backend import Place
from engine.model import Model
from engine.prompt import Prompt
from engine.reader import Reader
from engine.trie import Cell

# A node and the tokens to go on with from there; the answer is the node at their end.
Ask = tuple["Node", *tuple[int, ...]]

# The step that was told of behind another one for a token, in one of a run's trees, if one was.
StepAt = Callable[[int | None, int, int], int | None]


@dataclass(frozen=True, eq=False)
class Node:
    """An evaluated place in the trie, as one run sees it."""

    reader: Reader  # whose trie it is in
    cell: Cell
    place: Place  # what the model says after it
    text: tuple[int, ...]  # the tokens from the start of the prompt to here
    step: int | None = None  # the run's last step on the way here; None at the root
    untold: tuple[int, ...] = ()  # the tokens after that step, not told of when they were asked for
    tree: int = 0  # which of the run's trees it grows in; each tells of the same text as its own

    @cached_property
    def ids(self) -> Tensor:
        """The same tokens where the model's scores are, (length,): only processors want them."""
        return torch.tensor(self.text, dtype=torch.long, device=self.place.reading.logits.device)

    def below(self, tokens: Sequence[int], cell: Cell, place: Place, step_at: StepAt) -> Node:
        """The node some tokens further, with the last step that was told of on the way."""
        step, untold = self.step, [*self.untold, *tokens]
        while untold and (told := step_at(step, untold[0], self.tree)) is not None:
            step = told
            untold.pop(0)
        text = (*self.text, *tokens)
        return Node(self.reader, cell, place, text, step, tuple(untold), self.tree)

    def padded(self, token: int) -> Node:
        """The same place one token longer: what an ended row looks like to processors."""
        return replace(self, text=(*self.text, token))


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
    reader: Reader
    prompt: Prompt

    def begin(self) -> int:
        """Have the prompt evaluated, unless it is; gives how many tokens that took."""
        return self.reader.begin(self.prompt)

    @property
    def root(self) -> Node:
        """Where the prompt ends, once it is evaluated."""
        assert self.prompt.root is not None, "begin comes before root"
        cell, place = self.prompt.root
        return Node(self.reader, cell, place, (*self.prompt.padding, *self.prompt.start))
