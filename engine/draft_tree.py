"""Drafts as trees: what a model's draft heads find most probable, several tokens ahead.

Level by level the most probable paths are gone on with; of all tokens met on the way the most
probable ones are the tree. All shapes are fixed, so that a GPU does the whole of it as one recorded
graph and is asked once. Knows the heads. Refuses to know how a tree is judged.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Collection
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from engine.graphs import Graphs
from engine.heads import Heads

CHILDREN = 16  # most tokens looked at behind a path, and most paths that are gone on with
# Tokens that it pays to have judged in one pass: a GPU hardly notices them, a CPU each one.
FEW, MANY = 10, 48


class Tree(NamedTuple):
    """Drafted tokens, the most probable way to a token first; parents come before children."""

    tokens: list[int]
    parents: list[int]  # the place of the token before each, -1 where that is none of the tree
    log_probs: list[float]  # what the heads gave each token behind the one before it
    depths: list[int]  # how many tokens ahead each is, from 1


class TreeDrafter:
    """The draft heads of one model at work, for all who decode with it."""

    def __init__(self, heads: Heads) -> None:
        self._heads = heads
        self._lock = threading.Lock()
        self._graphs: Graphs[Tensor] = Graphs(heads.output.device)

    @property
    def depth(self) -> int:
        """How many tokens ahead a tree can reach."""
        return self._heads.depth

    @property
    def usual(self) -> int:
        """How many tokens a tree has that pays on this device."""
        return MANY if self._heads.output.device.type == "cuda" else FEW

    def tree(self, state: Tensor, token: int, ends: Collection[int], size: int, depth: int) -> Tree:
        """Draft behind a token that the model took at a state of its own, (1, width).

        At most ``size`` tokens, at most ``depth`` ahead, and none behind one of ``ends``.
        """
        work = partial(_grown, self._heads, size, depth)
        inputs = (state, torch.tensor([token]), torch.tensor(sorted(ends) or [-1]))
        with self._lock:  # the next recording writes over this one's result
            shape = (size, depth, len(ends))
            rows = self._graphs.play(work, shape, *inputs).tolist()
        return _read(rows)


def _grown(
    heads: Heads, size: int, depth: int, states: Tensor, tokens: Tensor, ends: Tensor
) -> Tensor:
    """The tree on its device: (5, tokens), see `_read`; float64 leaves whole numbers whole."""
    children = min(size, CHILDREN, len(heads.kept))
    paths = max(1, min(children, size // 2))
    totals = states.new_zeros(1, dtype=torch.float32)  # (paths,) how probable each path is
    above = torch.full_like(tokens, -1)  # (paths,) the number of each path's last token
    levels: list[tuple[Tensor, ...]] = []
    count = 0
    for level in range(depth):
        states = heads.state(level, states, tokens)  # (paths, width)
        best = heads.logits(states).float().log_softmax(-1).topk(children)  # (paths, children)
        found = heads.kept[best.indices].flatten()
        ways = (totals[:, None] + best.values).flatten()
        before = above[:, None].expand(-1, children).flatten()
        levels.append((found, before, ways, best.values.flatten()))
        over = (found[:, None] == ends).any(-1)
        totals, at = ways.masked_fill(over, -torch.inf).topk(min(paths, len(ways)))
        states, tokens, above = states[at // children], found[at], count + at
        count += len(ways)
    met = [torch.cat(column).double() for column in zip(*levels, strict=True)]
    # Stable: a token that is certain behind its parent is as probable as that, and comes after it.
    order = met[2].sort(descending=True, stable=True).indices[:size]
    return torch.stack([order.double(), *(column[order] for column in met)])


def _read(rows: list[list[float]]) -> Tree:
    """A tree of rows: each token's number among all that were met, the token, its parent's number,
    the logarithms of its path's probability and of its own."""
    tree = Tree([], [], [], [])
    places = {-1: -1}  # by number
    for number, token, parent, way, own in zip(*rows, strict=True):
        if way == -math.inf:  # behind an end; and so are those that follow
            break
        above = places[int(parent)]
        places[int(number)] = len(tree.tokens)
        tree.tokens.append(int(token))
        tree.parents.append(above)
        tree.log_probs.append(own)
        tree.depths.append(1 if above < 0 else tree.depths[above] + 1)
    return tree
