"""Draft trees in few Triton kernels: the most probable tokens of the draft heads, level by level.

Computes what `drafting.draft_tree` computes in torch, where launching many small kernels takes all
of the time. Every candidate token has a number, by which a kernel finds the results of earlier
kernels, so nothing has to be sorted, joined or looked up in between. For the network of
`drafting.heads` only.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton import cdiv, next_power_of_2

from engine.accel.triton_layer import gate
from engine.drafting.heads import Head, Heads
from engine.drafting.tree_size import MAX_CHILDREN, TreeSize, breadth

LONG = 16_384  # logits that fit in the registers of eight warps
EPSILON = torch.finfo(torch.float32).eps  # torch uses this one for 16-bit numbers too
CHILDREN = tl.constexpr(MAX_CHILDREN)
BLOCK = tl.constexpr(32)  # logits whose maximum is stored: one per thread of a warp
ENDS = tl.constexpr(16)  # end tokens that are compared at once
SHARE = tl.constexpr(16)  # values that one block of threads ranks
LAST = tl.constexpr(2**31 - 1)  # the highest possible index
NOTHING = tl.constexpr(-(2**63))  # lower than any key


class _Candidates(NamedTuple):
    """All candidates by number: level by level, path by path, the most probable first."""

    tokens: Tensor
    parents: Tensor  # numbers; -1 at the first level
    path_log_probs: Tensor  # log-probability of the path that ends here
    token_log_probs: Tensor  # log-probability of the token given its parent
    continuable: Tensor  # as path_log_probs, but -inf after an end token


# Not specialized: one kernel serves all sizes of trees and lists of end tokens. In a CUDA graph the
# inputs are at other addresses, and nothing can be compiled while one is recorded.
@triton.jit(do_not_specialize=["states", "before", "children"])
def _gather(
    states,  # (paths of the level before, states, width)
    embedding,
    tokens,  # by number; at the first level the token that the tree follows
    chosen,
    given,  # (paths, states + 1, width) the normalized input of a head
    last,  # (paths, width) the state that the head updates
    before,  # the number of the first token of the level before
    children,
    embedding_row,
    epsilon,
    STATES: tl.constexpr,
    SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
    FIRST: tl.constexpr,
) -> None:
    path, part = tl.program_id(0), tl.program_id(1)
    if FIRST:
        token, origin = tl.load(tokens), path
    else:
        number = tl.load(chosen + path)
        token, origin = tl.load(tokens + number), (number - before) // children
    lane = tl.arange(0, WIDTH)
    there = lane < SIZE
    kind = given.dtype.element_ty
    of_state, of_token = tl.where(part < STATES, SIZE, 0), tl.where(part < STATES, 0, SIZE)
    x = tl.load(states + (origin * STATES + part) * SIZE + lane, mask=lane < of_state, other=0.0)
    embedded = tl.load(embedding + token * embedding_row + lane, mask=lane < of_token, other=0.0)
    x = x.to(tl.float32) + embedded.to(kind).to(tl.float32)
    if part == STATES - 1:
        tl.store(last + path * SIZE + lane, x.to(kind), mask=there)
    x = x * tl.rsqrt(tl.sum(x * x, 0) / SIZE + epsilon)
    tl.store(given + (path * (STATES + 1) + part) * SIZE + lane, x.to(kind), mask=there)


@triton.jit
def _ordered_bits(bits):
    """Map the bits of float32 numbers to integers of the same order; it is its own inverse."""
    return bits ^ ((bits >> 31) & LAST)


@triton.jit
def _logits(row, index, size):
    """Logits of a row; NaN and indices past the end become -inf."""
    x = tl.load(row + index, mask=index < size, other=-float("inf")).to(tl.float32)
    return tl.where(x == x, x, -float("inf"))


@triton.jit
def _keys(x, index):
    """Pack logits and their indices into distinct integers: a higher logit gives a higher key, and
    of equal logits the first one does."""
    return (_ordered_bits(x.to(tl.int32, bitcast=True)).to(tl.int64) << 32) + (index ^ LAST)


@triton.jit
def _index_of(key):
    """The index in a key."""
    return ((key & LAST) ^ LAST).to(tl.int32)


@triton.jit
def _best(row, most, size, children, BLOCKS: tl.constexpr):
    """The highest keys of a row; ``most`` has the highest key of each block.

    A block is strided, every BLOCKS-th logit, so that a warp can find its maximum alone.
    """
    block, child = tl.arange(0, BLOCKS), tl.arange(0, CHILDREN)
    best = tl.full([CHILDREN], NOTHING, tl.int64)
    for index in range(children):
        key = tl.max(most, 0)
        best = tl.where(child == index, key, best)
        found = _index_of(key) % BLOCKS
        others = tl.arange(0, BLOCK) * BLOCKS + found
        left = _keys(_logits(row, others, size), others)
        left = tl.max(tl.where(left < key, left, NOTHING), 0)
        most = tl.where(block == found, left, most)
    return best


@triton.jit
def _is_end(tokens, ends, count):
    """Whether each token is an end token."""
    found = tl.zeros([CHILDREN], tl.int32)
    for start in range(0, count, ENDS):
        index = start + tl.arange(0, ENDS)
        end = tl.load(ends + index, mask=index < count, other=-1)
        found = tl.maximum(found, tl.max((tokens[:, None] == end[None, :]).to(tl.int32), 1))
    return found > 0


@triton.jit(do_not_specialize=["start", "count", "children"])
def _expand(
    logits,  # (paths, size)
    kept,
    ends,
    chosen,
    tokens,
    parents,
    path_log_probs,
    token_log_probs,
    continuable,
    start,
    size,
    count,  # of ends
    children,
    BLOCKS: tl.constexpr,
    FIRST: tl.constexpr,
) -> None:
    path, child = tl.program_id(0), tl.arange(0, CHILDREN)
    row, there = logits + path * size, child < children
    index = tl.arange(0, BLOCK)[:, None] * BLOCKS + tl.arange(0, BLOCKS)[None, :]
    x = _logits(row, index, size)
    highest = tl.max(tl.max(x, 0), 0)
    whole = tl.log(tl.sum(tl.sum(tl.exp(x - highest), 0), 0))
    best = _best(row, tl.max(_keys(x, index), 0), size, children, BLOCKS)
    token = tl.load(kept + _index_of(best), mask=there, other=0)
    logit = _ordered_bits((best >> 32).to(tl.int32)).to(tl.float32, bitcast=True)
    log_prob = (logit - highest) - whole
    log_prob = tl.where(log_prob == log_prob, log_prob, -float("inf"))  # NaN would have no rank
    at = start + path * children + child
    tl.store(tokens + at, token, mask=there)
    tl.store(token_log_probs + at, log_prob, mask=there)
    parent = tl.full([CHILDREN], -1, tl.int32)
    if not FIRST:
        parent = tl.zeros([CHILDREN], tl.int32) + tl.load(chosen + path)
        log_prob += tl.load(continuable + parent)
    tl.store(parents + at, parent, mask=there)
    tl.store(path_log_probs + at, log_prob, mask=there)
    ended = _is_end(token, ends, count)
    tl.store(continuable + at, tl.where(ended, -float("inf"), log_prob), mask=there)


@triton.jit
def _ranks(values, count, ALL: tl.constexpr):
    """The indices of this program's share of the values, and the rank of each, from 0. Of equal
    values the first one ranks higher."""
    mine, every = tl.program_id(0) * SHARE + tl.arange(0, SHARE), tl.arange(0, ALL)
    x = tl.load(values + mine, mask=mine < count, other=-float("inf"))[:, None]
    y = tl.load(values + every, mask=every < count, other=-float("inf"))[None, :]
    before = (y > x) | ((y == x) & (every[None, :] < mine[:, None]))
    return mine, tl.sum(before.to(tl.int32), 1)


@triton.jit(do_not_specialize=["start", "count", "paths"])
def _choose(continuable, chosen, start, count, paths, ALL: tl.constexpr) -> None:
    index, rank = _ranks(continuable + start, count, ALL)
    tl.store(chosen + rank, start + index, mask=(index < count) & (rank < paths))


@triton.jit(do_not_specialize=["size", "count"])
def _order(
    tokens, parents, path_log_probs, token_log_probs, rows, size, count, ALL: tl.constexpr
) -> None:
    number, rank = _ranks(path_log_probs, count, ALL)
    there = (number < count) & (rank < size)
    at = rows + rank
    tl.store(at, number.to(tl.float64), mask=there)
    token = tl.load(tokens + number, mask=there, other=0)
    tl.store(at + size, token.to(tl.float64), mask=there)
    parent = tl.load(parents + number, mask=there, other=0)
    tl.store(at + 2 * size, parent.to(tl.float64), mask=there)
    log_prob = tl.load(path_log_probs + number, mask=there, other=0.0)
    tl.store(at + 3 * size, log_prob.to(tl.float64), mask=there)
    alone = tl.load(token_log_probs + number, mask=there, other=0.0)
    tl.store(at + 4 * size, alone.to(tl.float64), mask=there)


class _TreeDraft:
    """The state of a draft tree during drafting."""

    def __init__(self, heads: Heads, size: TreeSize, taken: Tensor, ends: Tensor) -> None:
        self._heads, self._taken, self._ends = heads, taken, ends
        self._children, self._paths = breadth(heads, size)
        wide = self._paths * self._children
        # The number of the first candidate of each level, and the number of all candidates.
        self._starts = [0, *range(self._children, self._children + wide * size.depth, wide)]
        kinds = (torch.int64, torch.int32, torch.float32, torch.float32, torch.float32)
        self._candidates = _Candidates(
            *(taken.new_empty(self._starts[-1], dtype=kind) for kind in kinds)
        )
        # The number of the last token of each path.
        self._chosen = taken.new_empty(self._paths, dtype=torch.int32)

    def states(self, level: int, before: Tensor) -> Tensor:
        """Update the heads' states, (paths, width), with the chosen tokens; at the first level
        ``before`` are the model's hidden states, (1, layers, width)."""
        head: Head = self._heads.heads[level]  # type: ignore[assignment]  # a list of modules has no types
        embedding, width = self._heads.embedding, before.shape[-1]
        paths, read = (self._paths, 1) if level else (1, len(self._heads.layers))
        given, states = before.new_empty(paths, (read + 1) * width), before.new_empty(paths, width)
        _gather[paths, read + 1](
            before,
            embedding,
            self._candidates.tokens if level else self._taken,
            self._chosen,
            given,
            states,
            self._starts[level - 1] if level else 0,
            self._children,
            embedding.stride(0),
            EPSILON,
            STATES=read,
            SIZE=width,
            WIDTH=next_power_of_2(width),
            FIRST=level == 0,
        )
        return states.addmm_(gate(head.joined(given)), head.down.weight.T)

    def expand(self, level: int, logits: Tensor) -> None:
        """Add the most probable tokens after every path, by their logits, (paths, kept)."""
        paths, size = logits.shape
        _expand[(paths,)](
            logits,
            self._heads.kept,
            self._ends,
            self._chosen,
            *self._candidates,
            self._starts[level],
            size,
            len(self._ends),
            self._children,
            BLOCKS=next_power_of_2(cdiv(size, BLOCK.value)),
            FIRST=level == 0,
            num_warps=8 if size <= LONG else 16,
        )

    def choose(self, level: int) -> None:
        """Choose the paths to continue."""
        start, end = self._starts[level : level + 2]
        count = end - start
        _choose[(cdiv(count, SHARE.value),)](
            self._candidates.continuable,
            self._chosen,
            start,
            count,
            self._paths,
            ALL=MAX_CHILDREN**2,
        )

    def rows(self, most: int) -> Tensor:
        """The most probable candidates of all levels: (5, most)."""
        count = self._starts[-1]
        rows = self._taken.new_empty(5, min(most, count), dtype=torch.float64)
        _order[(cdiv(count, SHARE.value),)](
            *self._candidates[:4], rows, rows.shape[1], count, ALL=next_power_of_2(count)
        )
        return rows


def grown(heads: Heads, size: TreeSize, states: Tensor, tokens: Tensor, ends: Tensor) -> Tensor:
    """Draft a tree, (5, tokens), as `draft_tree._grow` does with the same arguments."""
    draft, states = _TreeDraft(heads, size, tokens, ends), states.contiguous()
    for level in range(size.depth):
        states = draft.states(level, states)
        draft.expand(level, heads.logits(states))
        if level + 1 < size.depth:
            draft.choose(level)
    return draft.rows(size.tokens)
