"""Attention of a few queries to a long pool, as a Triton kernel that splits the pool in pieces.

torch's own attention gives every head one block of threads, which walks over the whole pool: most
of a GPU is idle, and a longer pool takes longer. Here each piece of the pool has a block of its
own, and the pieces are combined afterwards (as in Flash-Decoding). Heads that share keys are
further queries of one key head, so that nothing is copied, and the mask is read as it is.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

MAX_PIECES = 32  # all are combined at once
BLOCKS = 300  # most blocks of threads: about two for each multiprocessor of a large GPU
SHORT = 1024  # visible positions up to which small blocks are faster
NEVER = tl.constexpr(-1.0e30)


@triton.jit(do_not_specialize=["rows", "visible", "piece"])
def _attend(
    query,  # (rows, heads, size)
    keys,  # (key heads, positions, size), like the values
    values,
    mask,  # (rows, visible) bytes
    parts,  # (pieces, rows, heads, size)
    sums,  # (pieces, rows, heads, 2) the highest score, and the sum of weights relative to it
    rows,
    visible,
    piece,
    scale,
    key_head,
    mask_row,
    GROUPS: tl.constexpr,
    SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    head, number = tl.program_id(1), tl.program_id(2)
    at = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    real = at < GROUPS * rows
    row = at % rows
    # The offset of its numbers: all heads of a row are adjacent.
    place = row * (tl.num_programs(1) * GROUPS) + head * GROUPS + at // rows
    lane = tl.arange(0, WIDTH)
    whole = real[:, None] & (lane < SIZE)[None, :]
    q = tl.load(query + place[:, None] * SIZE + lane[None, :], mask=whole, other=0.0)
    best = tl.full([QUERIES], NEVER, tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    mixed = tl.zeros([QUERIES, WIDTH], tl.float32)
    end = tl.minimum((number + 1) * piece, visible)
    for start in range(number * piece, end, KEYS):
        key = start + tl.arange(0, KEYS)
        inside = key < end
        seen = tl.load(
            mask + row[:, None] * mask_row + key[None, :],
            mask=real[:, None] & inside[None, :],
            other=0,
        )
        if tl.max(tl.max(seen.to(tl.int32), 1), 0) > 0:  # other branches are not even loaded
            offsets = head * key_head + key[:, None] * SIZE + lane[None, :]
            there = inside[:, None] & (lane < SIZE)[None, :]
            k = tl.load(keys + offsets, mask=there, other=0.0)
            v = tl.load(values + offsets, mask=there, other=0.0)
            scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
            scores = tl.where(seen != 0, scores, -float("inf"))
            higher = tl.maximum(best, tl.max(scores, 1))
            weights = tl.exp(scores - higher[:, None])
            shrunk = tl.exp(best - higher)
            total = total * shrunk + tl.sum(weights, 1)
            mixed = mixed * shrunk[:, None]
            mixed += tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
            best = higher
    place += number * rows * (tl.num_programs(1) * GROUPS)
    tl.store(parts + place[:, None] * SIZE + lane[None, :], mixed, mask=whole)
    tl.store(sums + place * 2, best, mask=real)
    tl.store(sums + place * 2 + 1, total, mask=real)


@triton.jit(do_not_specialize=["pieces"])
def _combine(
    parts,
    sums,
    attended,
    pieces,
    SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
    MOST: tl.constexpr,
) -> None:
    at, count = tl.program_id(0), tl.num_programs(0)
    number, lane = tl.arange(0, MOST), tl.arange(0, WIDTH)
    real, place = number < pieces, number * count + at
    best = tl.load(sums + place * 2, mask=real, other=NEVER)
    total = tl.load(sums + place * 2 + 1, mask=real, other=0.0)
    weight = tl.exp(best - tl.max(best, 0))
    there = real[:, None] & (lane < SIZE)[None, :]
    part = tl.load(parts + place[:, None] * SIZE + lane[None, :], mask=there, other=0.0)
    # A query that sees nothing gets zeros, not NaN.
    whole = tl.maximum(tl.sum(total * weight, 0), 1.0e-30)
    mean = tl.sum(part * weight[:, None], 0) / whole
    tl.store(attended + at * SIZE + lane, mean.to(attended.dtype.element_ty), mask=lane < SIZE)


def attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Attention of queries, (rows, heads, size), to keys and values, (key heads, positions, size),
    under a mask, (rows, visible): (rows, heads * size)."""
    (rows, heads, size), shared, visible = query.shape, len(keys), mask.shape[1]
    groups = heads // shared
    queries, span = (16, 64) if visible <= SHORT else (64, 128)
    if query.dtype == torch.float32 or size > 128:  # limited by shared memory
        queries, span = 16, 32
    columns = triton.cdiv(groups * rows, queries)
    pieces = max(1, min(MAX_PIECES, BLOCKS // (columns * shared), triton.cdiv(visible, span)))
    piece = triton.cdiv(triton.cdiv(visible, span), pieces) * span
    pieces = triton.cdiv(visible, piece)
    parts = query.new_empty(pieces, rows, heads, size, dtype=torch.float32)
    sums = query.new_empty(pieces, rows, heads, 2, dtype=torch.float32)
    attended = query.new_empty(rows, heads * size)
    width = triton.next_power_of_2(size)
    _attend[columns, shared, pieces](
        query,
        keys,
        values,
        mask.view(torch.uint8),
        parts,
        sums,
        rows,
        visible,
        piece,
        scale,
        keys.stride(0),
        mask.stride(0),
        GROUPS=groups,
        SIZE=size,
        WIDTH=width,
        QUERIES=queries,
        KEYS=span,
        PRECISION="ieee" if query.dtype == torch.float32 else "tf32",
    )
    _combine[(rows * heads,)](
        parts, sums, attended, pieces, SIZE=size, WIDTH=width, MOST=MAX_PIECES, num_warps=1
    )
    return attended
