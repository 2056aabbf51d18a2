"""Draft trees: the most probable continuations by a model's draft heads, several tokens ahead.

Level by level the most probable paths are continued; the most probable of all tokens met on the way
are the tree. On a GPU all shapes are fixed, so that drafting is one CUDA graph, with Triton kernels
where these can be used; a CPU computes no more than the tree needs.
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
from engine.accel.kernels import checked, kernels
from engine.drafting.heads import Heads
from engine.drafting.tree_size import MAX_CHILDREN, TreeSize, breadth

# From the states at a token, the token, (1,), and the tokens that end a text, (ends,), to the
# tree's columns: see `tree_of`.
Grow = Callable[[Tensor, Tensor, Tensor], Tensor]

CLOSE = 0.1  # how far log-probabilities by Triton kernels may be off from torch


class DraftTree(NamedTuple):
    """Drafted tokens, those on the most probable paths first; parents come before children."""

    tokens: list[int]
    parents: list[int]  # the index of the token before each; -1 before the first ones
    log_probs: list[float]  # of each token given its parent, by the heads
    depths: list[int]  # how many tokens ahead each is, from 1


class TreeDrafter:
    """Drafts trees with the draft heads of one model, for all runs."""

    def __init__(self, heads: Heads) -> None:
        self._heads = heads
        self._grow = _grow_with(heads)
        self.lock = threading.Lock()  # of the graphs: each replay overwrites the last result
        self.graphs: Graphs[Any] = Graphs(heads.output.device)

    @property
    def depth(self) -> int:
        """How many tokens ahead a tree can reach."""
        return self._heads.depth

    @property
    def layers(self) -> list[int]:
        """The layers of the model whose hidden states the heads read."""
        return self._heads.layers

    @property
    def default_size(self) -> TreeSize:
        """The size that is fastest on this device."""
        if self._heads.output.device.type == "cuda":
            # It verifies many tokens in the time of one, but the host takes time to record each.
            return TreeSize(15, self.depth)
        # Verifying one more token takes a CPU about a tenth of a pass, and saves a pass as often as
        # the token is accepted.
        return TreeSize(8, self.depth, 0.15)

    def tree(
        self, features: Tensor, token: int, ends: Collection[int], size: TreeSize
    ) -> DraftTree:
        """Draft after a token, from the model's hidden states at the position before it, (1,
        layers, width); nothing follows one of ``ends``."""
        end_ids = torch.tensor(sorted(ends) or [-1])
        inputs, shape = (features, torch.tensor([token]), end_ids), (size, len(end_ids))
        with self.lock:
            columns = self.graphs.play(self.growing(size), shape, *inputs).tolist()
        return tree_of(columns, size.min_probability)

    def growing(self, size: TreeSize) -> Grow:
        """The function that drafts trees of a size, on the device alone."""
        return partial(self._grow, self._heads, size)

    def max_tokens(self, size: TreeSize) -> int:
        """The most tokens that a tree of some size can have."""
        children, paths = breadth(self._heads, size)
        candidates, continued = 0, 1
        for _ in range(size.depth):
            candidates, continued = (
                candidates + continued * children,
                min(paths, continued * children),
            )
        return min(size.tokens, candidates)


def _grow_with(heads: Heads) -> Callable[..., Tensor]:
    """Triton kernels on a GPU, for heads that they know, if a trial agrees with `_grow`; else
    that."""
    known = type(heads) is Heads and heads.output.device.type == "cuda"
    ours = kernels("triton_drafting", there=known)
    if ours is None:
        return _grow
    fused: Callable[..., Tensor] = ours.grown
    return checked(fused, _grow, partial(_try, heads), "drafts are made")


@torch.inference_mode()
def _try(heads: Heads, grow: Callable[..., Tensor]) -> None:
    """Draft a small tree, and compare with torch."""
    count = len(heads.layers)
    states = heads.embedding[1 : 1 + count].to(heads.output.dtype)[None]
    tokens, ends = heads.kept[:1], heads.kept[-1:]
    size = TreeSize(MAX_CHILDREN, heads.depth)
    ours, theirs = (way(heads, size, states, tokens, ends) for way in (grow, _grow))
    if not torch.allclose(ours[3], theirs[3], atol=CLOSE):
        apart = float((ours[3] - theirs[3]).abs().max())
        raise ValueError(f"a tree differs by {apart:.2g} from torch")


def _grow(heads: Heads, size: TreeSize, states: Tensor, tokens: Tensor, ends: Tensor) -> Tensor:
    """The columns of a tree on its device, (5, tokens): float64 holds ids and numbers exactly."""
    children, paths = breadth(heads, size)
    totals = states.new_zeros(1, dtype=torch.float32)  # (paths,) log-probabilities of paths
    parents = torch.full_like(tokens, -1)  # (paths,) the number of each path's last token
    levels: list[tuple[Tensor, ...]] = []
    count = 0
    for level in range(size.depth):
        states = heads.state(level, states, tokens)  # (paths, width)
        best = heads.logits(states).float().log_softmax(-1).topk(children)  # (paths, children)
        found = heads.kept[best.indices].flatten()
        of_paths = (totals[:, None] + best.values).flatten()
        before = parents[:, None].expand(-1, children).flatten()
        levels.append((found, before, of_paths, best.values.flatten()))
        ended = (found[:, None] == ends).any(-1)
        totals, at = of_paths.masked_fill(ended, -torch.inf).topk(min(paths, len(of_paths)))
        if totals.device.type == "cpu":
            useful = totals > _threshold([level[2] for level in levels], size)
            totals, at = totals[useful], at[useful]
            if not len(at):
                break
        states, tokens, parents = states[at // children], found[at], count + at
        count += len(of_paths)
    candidates = [torch.cat(column).double() for column in zip(*levels, strict=True)]
    # Stable: a child that is certain has its parent's probability, and must come after it.
    order = candidates[2].sort(descending=True, stable=True).indices[: size.tokens]
    return torch.stack([order.double(), *(column[order] for column in candidates)])


def _threshold(of_paths: list[Tensor], size: TreeSize) -> float:
    """The log-probability above which a path can still add tokens to the tree: a longer path
    is never more probable."""
    candidates = torch.cat(of_paths)
    full = (
        float(candidates.topk(size.tokens).values[-1])
        if len(candidates) >= size.tokens
        else -math.inf
    )
    return max(full, math.log(size.min_probability) if size.min_probability else -math.inf)


def tree_of(columns: list[list[float]], min_probability: float) -> DraftTree:
    """A tree from its columns: each token's number among all that were met, its id, its parent's
    number, and the log-probabilities of its path and of itself."""
    tree = DraftTree([], [], [], [])
    indices = {-1: -1}  # in the tree, by number
    for number, token, parent, of_path, own in zip(*columns, strict=True):
        probability = math.exp(of_path)
        if probability < min_probability or not probability:  # 0 after an end token; sorted
            break
        above = indices[int(parent)]
        indices[int(number)] = len(tree.tokens)
        tree.tokens.append(int(token))
        tree.parents.append(above)
        tree.log_probs.append(own)
        tree.depths.append(1 if above < 0 else tree.depths[above] + 1)
    return tree
