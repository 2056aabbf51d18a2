"""Drafts as trees: what a model's draft heads find most probable, several tokens ahead.

Level by level the most probable paths are gone on with; of all tokens met on the way the most
probable ones are the tree. On a GPU all shapes are fixed, so that the whole of it is one recorded
graph, and one question, of kernels of our own where these can be made; a CPU does no more than the
tree needs. Knows the heads. Refuses to know how a tree is judged.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.accel.graphs import Graphs
from engine.accel.kernels import kernels, tried
from engine.drafting.heads import Heads

# From the states at a token, the token and those that end a text, (some,), to the tree's columns.
Growing = Callable[[Tensor, Tensor, Tensor], Tensor]

CHILDREN = 16  # most tokens looked at behind a path, and paths gone on with; a power of two
CLOSE = 0.1  # how far logarithms may be off where kernels of our own are tried


class Size(NamedTuple):
    """How large a tree may get."""

    tokens: int
    depth: int  # tokens ahead
    least: float = 0.0  # the probability that a path must have, by the heads


class Tree(NamedTuple):
    """Drafted tokens, those on the most probable paths first; parents come before children."""

    tokens: list[int]
    parents: list[int]  # the place of the token before each, -1 where that is none of the tree
    log_probs: list[float]  # what the heads gave each token behind the one before it
    depths: list[int]  # how many tokens ahead each is, from 1


class TreeDrafter:
    """The draft heads of one model at work, for all who decode with it."""

    def __init__(self, heads: Heads) -> None:
        self._heads = heads
        self._way = _way(heads)
        self.lock = threading.Lock()  # for the recordings: each writes over what it gave before
        self.graphs: Graphs[Any] = Graphs(heads.output.device)

    @property
    def depth(self) -> int:
        """How many tokens ahead a tree can reach."""
        return self._heads.depth

    @property
    def layers(self) -> list[int]:
        """The layers of the model whose states the heads read."""
        return self._heads.layers

    @property
    def usual(self) -> Size:
        """The size that pays on this device."""
        if self._heads.output.device.type == "cuda":
            # It judges many in the time of one, but the host takes a while to tell of each.
            return Size(15, self.depth)
        # A token more to judge takes a CPU about a tenth of a pass, and saves one as often as it is
        # kept.
        return Size(8, self.depth, 0.15)

    def tree(self, features: Tensor, token: int, ends: Collection[int], size: Size) -> Tree:
        """Draft behind a token that the model took where its states were ``features``, (1, layers,
        width); nothing behind one of ``ends``."""
        over = torch.tensor(sorted(ends) or [-1])
        inputs, shape = (features, torch.tensor([token]), over), (size, len(over))
        with self.lock:
            columns = self.graphs.play(self.growing(size), shape, *inputs).tolist()
        return tree_of(columns, size.least)

    def growing(self, size: Size) -> Growing:
        """The work of drafting a tree, on the device alone."""
        return partial(self._way, self._heads, size)

    def most(self, size: Size) -> int:
        """How many tokens a tree of some size can have."""
        children, paths = breadth(self._heads, size)
        met, ahead = 0, 1
        for _ in range(size.depth):
            met, ahead = met + ahead * children, min(paths, ahead * children)
        return min(size.tokens, met)


def _way(heads: Heads) -> Callable[..., Tensor]:
    """What grows trees: kernels of our own, where there is a GPU, the heads are those they know and
    a try agrees with `_grown`; elsewhere that."""
    known = type(heads) is Heads and heads.output.device.type == "cuda"
    ours = kernels("triton_drafting", there=known)
    if ours is None:
        return _grown
    few: Callable[..., Tensor] = ours.grown
    return tried(few, _grown, partial(_try, heads), "drafts are made")


@torch.inference_mode()
def _try(heads: Heads, way: Callable[..., Tensor]) -> None:
    """Grow a small tree with heads, and see that it is the one it must be."""
    count = len(heads.layers)
    states = heads.embedding[1 : 1 + count].to(heads.output.dtype)[None]
    tokens, ends = heads.kept[:1], heads.kept[-1:]
    size = Size(CHILDREN, heads.depth)
    ours, theirs = (grow(heads, size, states, tokens, ends) for grow in (way, _grown))
    if not torch.allclose(ours[3], theirs[3], atol=CLOSE):
        apart = float((ours[3] - theirs[3]).abs().max())
        raise ValueError(f"a tree in few kernels is off by {apart:.2g}")


def breadth(heads: Heads, size: Size) -> tuple[int, int]:
    """How many tokens are looked at behind a path, and how many paths are gone on with."""
    children = min(size.tokens, CHILDREN, len(heads.kept))
    return children, max(1, min(children, size.tokens // 2))


def _grown(heads: Heads, size: Size, states: Tensor, tokens: Tensor, ends: Tensor) -> Tensor:
    """The tree on its device: (5, tokens), see `tree_of`; float64 leaves whole numbers whole."""
    children, paths = breadth(heads, size)
    totals = states.new_zeros(1, dtype=torch.float32)  # (paths,) log-probabilities
    above = torch.full_like(tokens, -1)  # (paths,) the number of each path's last token
    levels: list[tuple[Tensor, ...]] = []
    count = 0
    for level in range(size.depth):
        states = heads.state(level, states, tokens)  # (paths, width)
        best = heads.logits(states).float().log_softmax(-1).topk(children)  # (paths, children)
        found = heads.kept[best.indices].flatten()
        ways = (totals[:, None] + best.values).flatten()
        before = above[:, None].expand(-1, children).flatten()
        levels.append((found, before, ways, best.values.flatten()))
        over = (found[:, None] == ends).any(-1)
        totals, at = ways.masked_fill(over, -torch.inf).topk(min(paths, len(ways)))
        if totals.device.type == "cpu":
            hopeful = totals > _bar([level[2] for level in levels], size)
            totals, at = totals[hopeful], at[hopeful]
            if not len(at):
                break
        states, tokens, above = states[at // children], found[at], count + at
        count += len(ways)
    met = [torch.cat(column).double() for column in zip(*levels, strict=True)]
    # Stable: a token that is certain behind its parent is as probable as that, and comes after it.
    order = met[2].sort(descending=True, stable=True).indices[: size.tokens]
    return torch.stack([order.double(), *(column[order] for column in met)])


def _bar(ways: list[Tensor], size: Size) -> float:
    """What a path must be above for any token behind it to get into the tree: no way gets more
    probable as it goes on."""
    met = torch.cat(ways)
    full = float(met.topk(size.tokens).values[-1]) if len(met) >= size.tokens else -math.inf
    return max(full, math.log(size.least) if size.least else -math.inf)


def tree_of(columns: list[list[float]], least: float) -> Tree:
    """A tree of what was drafted: each token's number among all that were met, the token, its
    parent's number, the logarithms of its path's probability and of its own."""
    tree = Tree([], [], [], [])
    places = {-1: -1}  # by number
    for number, token, parent, way, own in zip(*columns, strict=True):
        probability = math.exp(way)
        if probability < least or not probability:  # 0 behind an end; the others have less still
            break
        above = places[int(parent)]
        places[int(number)] = len(tree.tokens)
        tree.tokens.append(int(token))
        tree.parents.append(above)
        tree.log_probs.append(own)
        tree.depths.append(1 if above < 0 else tree.depths[above] + 1)
    return tree
