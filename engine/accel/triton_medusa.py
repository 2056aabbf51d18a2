"""The two steps between forward passes of Medusa rounds, each as one Triton kernel: walking down a
tree of drafts, and laying out the next one.

They compute what `medusa_pipeline` computes in torch, where nearly all the time is the launching of
small kernels. A tree is so small that one block of threads compares every row with every other one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.accel.graphs import ROWS
from engine.drafting.tree_size import START, TreeSize

MAX_ROWS = tl.constexpr(ROWS)
WARPS = 16  # of one block: the fewer pairs of rows a thread has, the faster


@triton.jit
def _parents(inside, depth):
    """The parent of each row, its deepest ancestor; of the first row itself."""
    row = tl.arange(0, MAX_ROWS)
    above = inside & (row[:, None] != row[None, :])
    # Depth and row as one number: an instruction finds the highest.
    return tl.max(tl.where(above, (depth * MAX_ROWS + row)[None, :], 0), 1) % MAX_ROWS


@triton.jit
def _end(inside, depth, used, agrees):
    """The deepest row whose ancestors the model agrees with; the first one always counts."""
    wrong = (tl.arange(0, MAX_ROWS) > 0) & (agrees == 0)
    accepted = tl.max((inside & wrong[None, :]).to(tl.int32), 1) == 0
    return tl.argmax(tl.where(accepted & used, 1 + depth, 0), 0)


@triton.jit
def _store_both(number, start, packed) -> None:
    tl.store(start, number)
    tl.store(packed, number.to(tl.float64))


# Not specialized: one kernel serves all trees of a model. Inputs lie elsewhere in a CUDA graph, and
# nothing can be compiled while one is recorded.
@triton.jit(do_not_specialize=["top", "log_probs", "hidden", "table", "rows", "columns"])
def _walk(
    top,  # (rows, best)
    log_probs,  # (rows, vocabulary)
    hidden,  # (rows or more, STATES, SIZE)
    table,  # (4 + columns, columns)
    packed,
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
    row = tl.arange(0, MAX_ROWS)
    used = row < rows
    best_token = tl.load(top + row * best, mask=used, other=0)
    token = tl.load(table + row, mask=used, other=0)
    depth = tl.load(table + columns + row, mask=used, other=0).to(tl.int32)
    place = (4 + row[:, None]) * columns + row[None, :]
    inside = tl.load(table + place, mask=used[:, None] & used[None, :], other=0) != 0
    parent = _parents(inside, depth)
    taken = tl.load(top + parent * best, mask=used, other=0)
    end = _end(inside, depth, used, taken == token)
    given = tl.load(log_probs + parent * vocabulary + token, mask=used, other=0.0)
    tl.store(parents + row, parent.to(tl.int64), mask=used)
    tl.store(packed + row, best_token.to(tl.float64), mask=used)
    tl.store(packed + rows + row, given.to(tl.float64), mask=used)
    last = packed + 2 * rows
    _store_both(tl.load(top + end * best), start, last)
    _store_both(tl.load(table + columns + end), start + 1, last + 1)
    _store_both(tl.load(table + 2 * columns + end), start + 2, last + 2)
    lane = tl.arange(0, WIDTH)
    for number in tl.static_range(len(LAYERS)):
        state = hidden + (end * STATES + LAYERS[number]) * SIZE
        x = tl.load(state + lane, mask=lane < SIZE)
        tl.store(features + number * SIZE + lane, x, mask=lane < SIZE)


def walk(
    layers: Sequence[int], top: Tensor, log_probs: Tensor, hidden: Tensor, table: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """How far the model agrees with a tree: see `medusa_pipeline.Walk`."""
    inputs = [tensor.contiguous() for tensor in (top, log_probs, hidden, table)]
    rows, (_, states, width) = len(top), hidden.shape
    packed = top.new_empty(2 * rows + START, dtype=torch.float64)
    start, features = top.new_empty(START), hidden.new_empty(1, len(layers), width)
    parents = top.new_empty(rows)
    _walk[(1,)](
        *inputs,
        packed,
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
    return packed, start, features, parents


@triton.jit
def _inside(number, above, used, depth):
    """The ancestors of each row and itself, by the numbers of the rows and of their parents."""
    row = tl.arange(0, MAX_ROWS)
    inside = (row[:, None] == row[None, :]).to(tl.int32)
    ancestor = above
    for _ in range(depth):
        found = used[None, :] & (ancestor[:, None] == number[None, :])
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
    min_probability: tl.float64,  # as the probabilities are; else it would be rounded
) -> None:
    row = tl.arange(0, MAX_ROWS)
    first, used, within = row == 0, row <= tokens, row < shape
    drafted, own = used & (row > 0), columns + row - 1
    # Numbers: that of the first row is -1, and so is its parent's.
    number = tl.load(own, mask=drafted, other=-1.0).to(tl.int32)
    token = tl.load(own + tokens, mask=drafted, other=0.0).to(tl.int64)
    above = tl.load(own + 2 * tokens, mask=drafted, other=-1.0).to(tl.int32)
    of_path = tl.load(own + 3 * tokens, mask=drafted, other=0.0)
    kept = used & (first | (tl.exp(of_path) >= min_probability))
    inside = _inside(number, above, used, depth)
    at = table + row
    tl.store(at, tl.where(kept, tl.where(first, tl.load(start), token), 0), mask=within)
    depths = tl.load(start + 1) + tl.sum(inside, 1)
    tl.store(at + shape, tl.where(kept, depths, 0), mask=within)
    tl.store(at + 2 * shape, tl.load(slots + row, mask=kept, other=0), mask=within)
    tl.store(at + 3 * shape, tl.where(kept, tl.load(start + 2), 0), mask=within)
    pairs = tl.where(kept[:, None] & kept[None, :], inside, 0)
    place = (4 + row[:, None]) * shape + row[None, :]
    tl.store(table + place, pairs.to(tl.int64), mask=within[:, None] & within[None, :])


def lay_out(size: TreeSize, columns: Tensor, start: Tensor, slots: Tensor) -> Tensor:
    """The table of a tree for the forward pass: see `medusa_pipeline._lay_out`."""
    shape = len(slots)
    table = slots.new_empty(4 + shape, shape)
    inputs = [tensor.contiguous() for tensor in (columns, start, slots)]
    count = columns.shape[1]
    _lay_out[(1,)](*inputs, table, count, shape, size.depth, size.min_probability, num_warps=WARPS)
    return table
