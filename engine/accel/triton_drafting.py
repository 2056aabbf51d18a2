"""Draft trees in few Triton kernels: the most probable tokens of the draft heads, level by level.

Computes what `drafting.draft_tree` computes in torch, where launching many small kernels takes all
of the time. Every token has a number, by which a kernel finds the results of earlier kernels, so
nothing has to be sorted, joined or looked up in between. For the network of `drafting.heads` only.
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

LONG = 16_384  # logits that eight warps have room for
EPSILON = torch.finfo(torch.float32).eps  # torch's own, for numbers of sixteen bits too
CHILDREN = tl.constexpr(MAX_CHILDREN)
BLOCK = tl.constexpr(32)  # logits whose maximum is stored: one per thread of a warp
ENDS = tl.constexpr(16)  # end tokens that are compared at once
SHARE = tl.constexpr(16)  # of what is put in order, for one block of threads
LAST = tl.constexpr(2**31 - 1)  # the highest place there may be
NOTHING = tl.constexpr(-(2**63))  # lower than any key


class _Met(NamedTuple):
    """All tokens that are met, by number: level by level, path by path, the most probable first."""

    tokens: Tensor
    parents: Tensor  # numbers, -1 where that is none of the tree
    ways: Tensor  # log-probabilities of the paths that end here
    own: Tensor  # and of the tokens alone
    open: Tensor  # the ways once more, -inf where nothing may follow


# As few kernels as can be are made, for all sizes of trees and ends. A recording has the first
# states elsewhere, and nothing can be made while it is recorded.
@triton.jit(do_not_specialize=["states", "before", "children"])
def _gather(
    states,  # (paths of the level before, states, width)
    embedding,
    tokens,  # by number, at first the one that was taken
    chosen,
    given,  # (paths, states + 1, width) all that a head reads, normalized
    last,  # (paths, width) the state that it changes
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
def _turned(bits):
    """The bits of float32 as whole numbers in the same order, and the other way round."""
    return bits ^ ((bits >> 31) & LAST)


@triton.jit
def _logits(row, place, size):
    """Logits of a row; what is not a number is as improbable as what is not there."""
    x = tl.load(row + place, mask=place < size, other=-float("inf")).to(tl.float32)
    return tl.where(x == x, x, -float("inf"))


@triton.jit
def _keys(x, place):
    """Logits and their places as one: whole numbers of which the highest has the highest logit, and
    stands furthest left. No two are the same."""
    return (_turned(x.to(tl.int32, bitcast=True)).to(tl.int64) << 32) + (place ^ LAST)


@triton.jit
def _place(key):
    """Where the logit of a key stands."""
    return ((key & LAST) ^ LAST).to(tl.int32)


@triton.jit
def _best(row, most, size, children, BLOCKS: tl.constexpr):
    """The highest keys of a row, of which ``most`` has the highest of every block.

    A block is every so manyth logit: a warp has one of each, and needs no other to find the best.
    """
    block, child = tl.arange(0, BLOCKS), tl.arange(0, CHILDREN)
    best = tl.full([CHILDREN], NOTHING, tl.int64)
    for place in range(children):
        key = tl.max(most, 0)
        best = tl.where(child == place, key, best)
        found = _place(key) % BLOCKS
        others = tl.arange(0, BLOCK) * BLOCKS + found
        left = _keys(_logits(row, others, size), others)
        left = tl.max(tl.where(left < key, left, NOTHING), 0)
        most = tl.where(block == found, left, most)
    return best


@triton.jit
def _among(tokens, ends, count):
    """Whether tokens are among the ends."""
    found = tl.zeros([CHILDREN], tl.int32)
    for start in range(0, count, ENDS):
        place = start + tl.arange(0, ENDS)
        end = tl.load(ends + place, mask=place < count, other=-1)
        found = tl.maximum(found, tl.max((tokens[:, None] == end[None, :]).to(tl.int32), 1))
    return found > 0


@triton.jit(do_not_specialize=["start", "count", "children"])
def _look(
    logits,  # (paths, size)
    kept,
    ends,
    chosen,
    tokens,
    parents,
    ways,
    own,
    open,
    start,
    size,
    count,  # of ends
    children,
    BLOCKS: tl.constexpr,
    FIRST: tl.constexpr,
) -> None:
    path, child = tl.program_id(0), tl.arange(0, CHILDREN)
    row, there = logits + path * size, child < children
    place = tl.arange(0, BLOCK)[:, None] * BLOCKS + tl.arange(0, BLOCKS)[None, :]
    x = _logits(row, place, size)
    highest = tl.max(tl.max(x, 0), 0)
    whole = tl.log(tl.sum(tl.sum(tl.exp(x - highest), 0), 0))
    best = _best(row, tl.max(_keys(x, place), 0), size, children, BLOCKS)
    token = tl.load(kept + _place(best), mask=there, other=0)
    logit = _turned((best >> 32).to(tl.int32)).to(tl.float32, bitcast=True)
    way = (logit - highest) - whole
    way = tl.where(way == way, way, -float("inf"))  # or it would have no rank
    at = start + path * children + child
    tl.store(tokens + at, token, mask=there)
    tl.store(own + at, way, mask=there)
    parent = tl.full([CHILDREN], -1, tl.int32)
    if not FIRST:
        parent = tl.zeros([CHILDREN], tl.int32) + tl.load(chosen + path)
        way += tl.load(open + parent)
    tl.store(parents + at, parent, mask=there)
    tl.store(ways + at, way, mask=there)
    ended = _among(token, ends, count)
    tl.store(open + at, tl.where(ended, -float("inf"), way), mask=there)


@triton.jit
def _ranks(values, count, ALL: tl.constexpr):
    """This program's share of some values: their places, and how many others come before each. Of
    those that are as high, the one further left does."""
    mine, every = tl.program_id(0) * SHARE + tl.arange(0, SHARE), tl.arange(0, ALL)
    x = tl.load(values + mine, mask=mine < count, other=-float("inf"))[:, None]
    y = tl.load(values + every, mask=every < count, other=-float("inf"))[None, :]
    before = (y > x) | ((y == x) & (every[None, :] < mine[:, None]))
    return mine, tl.sum(before.to(tl.int32), 1)


@triton.jit(do_not_specialize=["start", "count", "paths"])
def _choose(open, chosen, start, count, paths, ALL: tl.constexpr) -> None:
    place, rank = _ranks(open + start, count, ALL)
    tl.store(chosen + rank, start + place, mask=(place < count) & (rank < paths))


@triton.jit(do_not_specialize=["size", "count"])
def _order(tokens, parents, ways, own, rows, size, count, ALL: tl.constexpr) -> None:
    number, rank = _ranks(ways, count, ALL)
    there = (number < count) & (rank < size)
    at = rows + rank
    tl.store(at, number.to(tl.float64), mask=there)
    token = tl.load(tokens + number, mask=there, other=0)
    tl.store(at + size, token.to(tl.float64), mask=there)
    parent = tl.load(parents + number, mask=there, other=0)
    tl.store(at + 2 * size, parent.to(tl.float64), mask=there)
    way = tl.load(ways + number, mask=there, other=0.0)
    tl.store(at + 3 * size, way.to(tl.float64), mask=there)
    alone = tl.load(own + number, mask=there, other=0.0)
    tl.store(at + 4 * size, alone.to(tl.float64), mask=there)


class _Growth:
    """A tree while it grows."""

    def __init__(self, heads: Heads, size: TreeSize, taken: Tensor, ends: Tensor) -> None:
        self._heads, self._taken, self._ends = heads, taken, ends
        self._children, self._paths = breadth(heads, size)
        wide = self._paths * self._children
        # The number of the first token of each level, and at last how many there are in all.
        self._starts = [0, *range(self._children, self._children + wide * size.depth, wide)]
        kinds = (torch.int64, torch.int32, torch.float32, torch.float32, torch.float32)
        self._met = _Met(*(taken.new_empty(self._starts[-1], dtype=kind) for kind in kinds))
        self._chosen = taken.new_empty(self._paths, dtype=torch.int32)  # numbers of last tokens

    def states(self, level: int, before: Tensor) -> Tensor:
        """The states after the tokens chosen last, (paths, width), of those before them; at first
        of the model's own, (1, layers, width)."""
        head: Head = self._heads.heads[level]  # type: ignore[assignment]  # a list of modules has no types
        embedding, width = self._heads.embedding, before.shape[-1]
        paths, read = (self._paths, 1) if level else (1, len(self._heads.layers))
        given, states = before.new_empty(paths, (read + 1) * width), before.new_empty(paths, width)
        _gather[paths, read + 1](
            before,
            embedding,
            self._met.tokens if level else self._taken,
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

    def look(self, level: int, logits: Tensor) -> None:
        """Meet the most probable tokens behind every path, by their logits, (paths, kept)."""
        paths, size = logits.shape
        _look[(paths,)](
            logits,
            self._heads.kept,
            self._ends,
            self._chosen,
            *self._met,
            self._starts[level],
            size,
            len(self._ends),
            self._children,
            BLOCKS=next_power_of_2(cdiv(size, BLOCK.value)),
            FIRST=level == 0,
            num_warps=8 if size <= LONG else 16,
        )

    def choose(self, level: int) -> None:
        """Choose the paths that are gone on with."""
        start, end = self._starts[level : level + 2]
        count = end - start
        _choose[(cdiv(count, SHARE.value),)](
            self._met.open, self._chosen, start, count, self._paths, ALL=MAX_CHILDREN**2
        )

    def rows(self, most: int) -> Tensor:
        """The most probable of all that were met: (5, most)."""
        count = self._starts[-1]
        rows = self._taken.new_empty(5, min(most, count), dtype=torch.float64)
        _order[(cdiv(count, SHARE.value),)](
            *self._met[:4], rows, rows.shape[1], count, ALL=next_power_of_2(count)
        )
        return rows


def grown(heads: Heads, size: TreeSize, states: Tensor, tokens: Tensor, ends: Tensor) -> Tensor:
    """The tree as `draft_tree` reads it, (5, tokens), of the same arguments."""
    growth, states = _Growth(heads, size, tokens, ends), states.contiguous()
    for level in range(size.depth):
        states = growth.states(level, states)
        growth.look(level, heads.logits(states))
        if level + 1 < size.depth:
            growth.choose(level)
    return growth.rows(size.tokens)
