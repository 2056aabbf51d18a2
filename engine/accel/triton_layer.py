"""The operations of `torch_layer` as one Triton kernel each.

torch takes forty kernels of a microsecond for them, and most of that is launching. Rounds where
transformers rounds. Triton comes with torch for CUDA.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.accel.torch_layer import LayerOps, Norm, PassInputs
from engine.accel.triton_attention import attend

BLOCK = 1024  # numbers of one block of threads


def prepare(rotary: Sequence[Tensor], mask: Tensor, groups: int) -> PassInputs:
    """Convert cosines and sines, (1, rows, size), and a mask, (rows, visible), for the operations
    below."""
    cos, sin = rotary
    return PassInputs((cos[0].contiguous(), sin[0].contiguous()), mask)


@triton.jit
def _normalize(
    hidden,
    added,
    weight,
    summed,
    normed,
    epsilon,
    SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
    ADDS: tl.constexpr,
) -> None:
    lane = tl.arange(0, WIDTH)
    there = lane < SIZE
    at = tl.program_id(0) * SIZE + lane
    kind = normed.dtype.element_ty
    x = tl.load(hidden + at, mask=there, other=0.0).to(tl.float32)
    if ADDS:
        x = (x + tl.load(added + at, mask=there, other=0.0).to(tl.float32)).to(kind)
        tl.store(summed + at, x, mask=there)
        x = x.to(tl.float32)
    x = x * tl.rsqrt(tl.sum(x * x, 0) / SIZE + epsilon)
    scaled = x.to(kind).to(tl.float32) * tl.load(weight + lane, mask=there, other=0.0)
    tl.store(normed + at, scaled.to(kind), mask=there)


def normalize(hidden: Tensor, norm: Norm) -> Tensor:
    """Rows of hidden states, (rows, width), normalized."""
    normed = torch.empty_like(hidden)
    rows, size = hidden.shape
    width = triton.next_power_of_2(size)
    _normalize[(rows,)](
        hidden, hidden, norm.weight, hidden, normed, norm.epsilon, size, width, ADDS=False
    )
    return normed


def add_and_normalize(hidden: Tensor, added: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
    """The sum, and the sum normalized."""
    summed, normed = torch.empty_like(hidden), torch.empty_like(hidden)
    rows, size = hidden.shape
    width = triton.next_power_of_2(size)
    _normalize[(rows,)](
        hidden, added, norm.weight, summed, normed, norm.epsilon, size, width, ADDS=True
    )
    return summed, normed


@triton.jit
def _rotate(
    joined,  # (rows, heads, size): of queries, of keys, of values
    cos,  # (rows, size)
    sin,
    slots,  # (rows,)
    query,
    keys,
    values,
    query_norm,
    key_norm,
    epsilon,
    key_head,
    HEADS: tl.constexpr,
    SHARED: tl.constexpr,
    SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
    NORMS: tl.constexpr,
) -> None:
    row, head = tl.program_id(0), tl.program_id(1)
    lane = tl.arange(0, WIDTH)
    there = lane < SIZE
    own = joined + (row * (HEADS + 2 * SHARED) + head) * SIZE
    given = tl.load(own + lane, mask=there, other=0.0)
    slot = tl.load(slots + row)
    if head >= HEADS + SHARED:
        into = values + (head - HEADS - SHARED) * key_head + slot * SIZE
        tl.store(into + lane, given, mask=there)
    else:
        # Two numbers half a head apart are one point, rotated by an angle.
        other = (lane + SIZE // 2) % SIZE
        kind = joined.dtype.element_ty
        x = given.to(tl.float32)
        y = tl.load(own + other, mask=there, other=0.0).to(tl.float32)
        if NORMS:
            shrink = tl.rsqrt(tl.sum(x * x, 0) / SIZE + epsilon)
            first = tl.where(head < HEADS, 1.0, 0.0)
            weight = first * tl.load(query_norm + lane, mask=there)
            weight += (1.0 - first) * tl.load(key_norm + lane, mask=there)
            x = (x * shrink).to(kind).to(tl.float32) * weight
            weight = first * tl.load(query_norm + other, mask=there)
            weight += (1.0 - first) * tl.load(key_norm + other, mask=there)
            y = (y * shrink).to(kind).to(tl.float32) * weight
        y = tl.where(lane < SIZE // 2, -y, y)
        rotated = x * tl.load(cos + row * SIZE + lane, mask=there).to(tl.float32)
        rotated += y * tl.load(sin + row * SIZE + lane, mask=there).to(tl.float32)
        if head < HEADS:
            tl.store(query + (row * HEADS + head) * SIZE + lane, rotated.to(kind), mask=there)
        else:
            place = keys + (head - HEADS) * key_head + slot * SIZE
            tl.store(place + lane, rotated.to(kind), mask=there)


def rotate_and_store(
    joined: Tensor,
    rotary: tuple[Tensor, Tensor],
    slots: Tensor,
    keys: Tensor,
    values: Tensor,
    norms: Sequence[Norm] | None,
) -> Tensor:
    """Apply rotary positions, (rows, size), to queries and keys, store keys and values at their
    slots, (key heads, positions, size), and return the queries, (rows, heads, size).

    ``joined`` has a row's queries, keys and values, one after the other; ``norms`` are those of
    queries and of keys, where there are any.
    """
    shared, _, size = keys.shape
    rows, heads = len(joined), joined.shape[1] // size - 2 * shared
    query = joined.new_empty(rows, heads, size)
    first, second = norms or (Norm(joined, 0.0), Norm(joined, 0.0))
    _rotate[rows, heads + 2 * shared](
        joined,
        *rotary,
        slots,
        query,
        keys,
        values,
        first.weight,
        second.weight,
        first.epsilon,
        keys.stride(0),
        HEADS=heads,
        SHARED=shared,
        SIZE=size,
        WIDTH=triton.next_power_of_2(size),
        NORMS=norms is not None,
        num_warps=1,
    )
    return query


@triton.jit
def _gate(joined, gated, SIZE: tl.constexpr, BLOCK: tl.constexpr) -> None:
    row, lane = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = lane < SIZE
    gate = tl.load(joined + row * 2 * SIZE + lane, mask=there, other=0.0)
    up = tl.load(joined + row * 2 * SIZE + SIZE + lane, mask=there, other=0.0)
    wide = gate.to(tl.float32)
    opened = (wide * tl.sigmoid(wide)).to(gate.dtype).to(tl.float32)
    tl.store(gated + row * SIZE + lane, (opened * up.to(tl.float32)).to(gate.dtype), mask=there)


def gate(joined: Tensor) -> Tensor:
    """SiLU of the gate times the up projection, (rows, 2 * width): (rows, width)."""
    rows, size = len(joined), joined.shape[1] // 2
    gated = joined.new_empty(rows, size)
    _gate[rows, triton.cdiv(size, BLOCK)](joined, gated, SIZE=size, BLOCK=BLOCK)
    return gated


OPS = LayerOps(prepare, normalize, add_and_normalize, rotate_and_store, attend, gate)
