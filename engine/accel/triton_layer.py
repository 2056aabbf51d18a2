"""What a decoder layer does between its matrix products, each as one kernel.

Torch does the same in forty kernels of a microsecond each, most of it on the way to the next one.
Rounds where transformers rounds. Knows Triton, which comes with torch for CUDA. Refuses to know
models.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.accel.torch_layer import Norm, Ready
from engine.accel.triton_attention import attend

__all__ = ["Norm", "add_and_normalize", "attend", "gate", "normalize", "ready", "turn_and_write"]

BLOCK = 1024  # numbers of one block of threads


def ready(angles: Sequence[Tensor], mask: Tensor, groups: int) -> Ready:
    """Angles, (1, rows, size), and a mask, (rows, visible), as the steps below take them."""
    cos, sin = angles
    return Ready((cos[0].contiguous(), sin[0].contiguous()), mask)


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
    """The sum of two, and that normalized."""
    summed, normed = torch.empty_like(hidden), torch.empty_like(hidden)
    rows, size = hidden.shape
    width = triton.next_power_of_2(size)
    _normalize[(rows,)](
        hidden, added, norm.weight, summed, normed, norm.epsilon, size, width, ADDS=True
    )
    return summed, normed


@triton.jit
def _turn(
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
        # A pair of numbers that are half a head apart is a point, turned by an angle.
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
        turned = x * tl.load(cos + row * SIZE + lane, mask=there).to(tl.float32)
        turned += y * tl.load(sin + row * SIZE + lane, mask=there).to(tl.float32)
        if head < HEADS:
            tl.store(query + (row * HEADS + head) * SIZE + lane, turned.to(kind), mask=there)
        else:
            place = keys + (head - HEADS) * key_head + slot * SIZE
            tl.store(place + lane, turned.to(kind), mask=there)


def turn_and_write(
    joined: Tensor,
    angles: tuple[Tensor, Tensor],
    slots: Tensor,
    keys: Tensor,
    values: Tensor,
    norms: Sequence[Norm] | None,
) -> Tensor:
    """Turn queries and keys by the angles of their positions, (rows, size), and write keys and
    values where they belong, (key heads, positions, size): the queries, (rows, heads, size).

    ``joined`` has a row's queries, keys and values, one after the other; ``norms`` are those of
    queries and of keys, where there are any.
    """
    shared, _, size = keys.shape
    rows, heads = len(joined), joined.shape[1] // size - 2 * shared
    query = joined.new_empty(rows, heads, size)
    first, second = norms or (Norm(joined, 0.0), Norm(joined, 0.0))
    _turn[rows, heads + 2 * shared](
        joined,
        *angles,
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
    """Of a gate and what it lets through, (rows, 2 * width), what comes through: (rows, width)."""
    rows, size = len(joined), joined.shape[1] // 2
    gated = joined.new_empty(rows, size)
    _gate[rows, triton.cdiv(size, BLOCK)](joined, gated, SIZE=size, BLOCK=BLOCK)
    return gated
