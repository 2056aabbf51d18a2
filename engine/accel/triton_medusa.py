"""What comes between two rounds of drafts, each as one kernel: to judge a tree, and to lay out the
next one.

The same as `ahead` does in torch, where all of the time is the way from one small kernel to the
next. A tree is so small that one block of threads holds every row against every other one, and all
that is read was there before. Knows Triton, which comes with torch for CUDA. Refuses to know where
trees come from, and who reads them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.accel.graphs import ROWS
from engine.accel.medusa_pipeline import START, Verdict
from engine.drafting.draft_tree import Size

REFERENCE = tl.constexpr(ROWS)
WARPS = 16  # of one block: the fewer pairs of rows a thread has, the less it does one by one


@triton.jit
def _parents(inside, depth):
    """The deepest row above each; of the first one that itself."""
    row = tl.arange(0, REFERENCE)
    above = inside & (row[:, None] != row[None, :])
    # Depth and place as one number: there is an instruction that finds the highest.
    return tl.max(tl.where(above, (depth * REFERENCE + row)[None, :], 0), 1) % REFERENCE


@triton.jit
def _end(inside, depth, there, right):
    """The deepest row down to which everything is right; the first one always is."""
    wrong = (tl.arange(0, REFERENCE) > 0) & (right == 0)
    kept = tl.max((inside & wrong[None, :]).to(tl.int32), 1) == 0
    return tl.argmax(tl.where(kept & there, 1 + depth, 0), 0)


@triton.jit
def _tell(number, start, told) -> None:
    tl.store(start, number)
    tl.store(told, number.to(tl.float64))


# One kernel is made for all trees of a model. A recording has what it reads elsewhere, and nothing
# can be made while it is recorded.
@triton.jit(do_not_specialize=["top", "log_probs", "hidden", "table", "rows", "columns"])
def _judge(
    top,  # (rows, best)
    log_probs,  # (rows, vocabulary)
    hidden,  # (rows or more, STATES, SIZE)
    table,  # (4 + columns, columns)
    told,
    start,
    features,
    parents,
    rows,
    columns,
    best,
    vocabulary,
    LAYERS: tl.constexpr,
    STATES: tl.constexpr,
    SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    row = tl.arange(0, REFERENCE)
    there = row < rows
    own = tl.load(top + row * best, mask=there, other=0)
    token = tl.load(table + row, mask=there, other=0)
    depth = tl.load(table + columns + row, mask=there, other=0).to(tl.int32)
    place = (4 + row[:, None]) * columns + row[None, :]
    inside = tl.load(table + place, mask=there[:, None] & there[None, :], other=0) != 0
    parent = _parents(inside, depth)
    taken = tl.load(top + parent * best, mask=there, other=0)
    end = _end(inside, depth, there, taken == token)
    given = tl.load(log_probs + parent * vocabulary + token, mask=there, other=0.0)
    tl.store(parents + row, parent.to(tl.int64), mask=there)
    tl.store(told + row, own.to(tl.float64), mask=there)
    tl.store(told + rows + row, given.to(tl.float64), mask=there)
    last = told + 2 * rows
    _tell(tl.load(top + end * best), start, last)
    _tell(tl.load(table + columns + end), start + 1, last + 1)
    _tell(tl.load(table + 2 * columns + end), start + 2, last + 2)
    lane = tl.arange(0, WIDTH)
    for number in tl.static_range(len(LAYERS)):
        state = hidden + (end * STATES + LAYERS[number]) * SIZE
        x = tl.load(state + lane, mask=lane < SIZE)
        tl.store(features + number * SIZE + lane, x, mask=lane < SIZE)


def judge(
    layers: Sequence[int], top: Tensor, log_probs: Tensor, hidden: Tensor, table: Tensor
) -> Verdict:
    """How far a tree is right, as `ahead` says, of the same arguments."""
    read = [given.contiguous() for given in (top, log_probs, hidden, table)]
    rows, (_, states, width) = len(top), hidden.shape
    told = top.new_empty(2 * rows + START, dtype=torch.float64)
    start, features = top.new_empty(START), hidden.new_empty(1, len(layers), width)
    parents = top.new_empty(rows)
    _judge[(1,)](
        *read,
        told,
        start,
        features,
        parents,
        rows,
        table.shape[1],
        top.shape[1],
        log_probs.shape[1],
        LAYERS=tuple(layer % states for layer in layers),
        STATES=states,
        SIZE=width,
        WIDTH=triton.next_power_of_2(width),
        num_warps=WARPS,
    )
    return Verdict(told, start, features, parents)


@triton.jit
def _inside(number, above, there, depth):
    """Who is above whom, or the same, by their own numbers and those of their parents."""
    row = tl.arange(0, REFERENCE)
    inside = (row[:, None] == row[None, :]).to(tl.int32)
    ancestor = above
    for _ in range(depth):
        found = there[None, :] & (ancestor[:, None] == number[None, :])
        inside = tl.maximum(inside, found.to(tl.int32))
        ancestor = tl.max(tl.where(found, above[None, :], -1), 1)
    return inside


@triton.jit(do_not_specialize=["columns", "start", "slots", "tokens", "shape", "depth"])
def _lay_out(
    columns,  # (5, tokens)
    start,
    slots,  # (shape,)
    table,  # (4 + shape, shape)
    tokens,
    shape,
    depth,
    least: tl.float64,  # like the probabilities; by itself it would be rounded
) -> None:
    row = tl.arange(0, REFERENCE)
    first, there, within = row == 0, row <= tokens, row < shape
    drafted, own = there & (row > 0), columns + row - 1
    # By number: that of the first row is -1, and so is what is said to be above it.
    number = tl.load(own, mask=drafted, other=-1.0).to(tl.int32)
    token = tl.load(own + tokens, mask=drafted, other=0.0).to(tl.int64)
    above = tl.load(own + 2 * tokens, mask=drafted, other=-1.0).to(tl.int32)
    way = tl.load(own + 3 * tokens, mask=drafted, other=0.0)
    left = there & (first | (tl.exp(way) >= least))
    inside = _inside(number, above, there, depth)
    at = table + row
    tl.store(at, tl.where(left, tl.where(first, tl.load(start), token), 0), mask=within)
    depths = tl.load(start + 1) + tl.sum(inside, 1)
    tl.store(at + shape, tl.where(left, depths, 0), mask=within)
    tl.store(at + 2 * shape, tl.load(slots + row, mask=left, other=0), mask=within)
    tl.store(at + 3 * shape, tl.where(left, tl.load(start + 2), 0), mask=within)
    pairs = tl.where(left[:, None] & left[None, :], inside, 0)
    place = (4 + row[:, None]) * shape + row[None, :]
    tl.store(table + place, pairs.to(tl.int64), mask=within[:, None] & within[None, :])


def lay_out(size: Size, columns: Tensor, start: Tensor, slots: Tensor) -> Tensor:
    """The table of a tree, as `ahead` has it, of the same arguments."""
    shape = len(slots)
    table = slots.new_empty(4 + shape, shape)
    read = [given.contiguous() for given in (columns, start, slots)]
    count = columns.shape[1]
    _lay_out[(1,)](*read, table, count, shape, size.depth, size.least, num_warps=WARPS)
    return table
