"""The operations of a decoder layer between its matrix products, in few torch operations.

For a few rows, a CPU spends most of an operation's time on calling it, and transformers converts a
boolean mask wherever it is used: here that is done once for all layers of a pass. Rounds where
transformers rounds. `triton_layer` has the same operations as GPU kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu


class Norm(NamedTuple):
    """A root-mean-square norm: its weight, and the number that keeps it from dividing by 0."""

    weight: Tensor
    epsilon: float


class PassInputs(NamedTuple):
    """What all layers of a forward pass share."""

    rotary: tuple[Tensor, Tensor]  # cosines and sines of the positions
    mask: Tensor


class LayerOps(NamedTuple):
    """The operations between the products of a layer."""

    prepare: Callable[[Sequence[Tensor], Tensor, int], PassInputs]
    normalize: Callable[[Tensor, Norm], Tensor]
    add_and_normalize: Callable[[Tensor, Tensor, Norm], tuple[Tensor, Tensor]]
    rotate_and_store: Callable[..., Tensor]
    attend: Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor]
    gate: Callable[[Tensor], Tensor]


def prepare(rotary: Sequence[Tensor], mask: Tensor, groups: int) -> PassInputs:
    """Convert cosines and sines, (1, rows, size), and a mask, (rows, visible), for the operations
    below; ``groups`` heads share a key head."""
    cos, sin = rotary[0][0][:, None], rotary[1][0][:, None]
    first, second = sin.chunk(2, -1)
    added = torch.zeros_like(mask, dtype=cos.dtype).masked_fill_(~mask, -torch.inf)
    return PassInputs((cos, torch.cat([-first, second], -1)), added.repeat(groups, 1)[None, None])


def normalize(hidden: Tensor, norm: Norm) -> Tensor:
    """Rows of hidden states, (…, width), normalized."""
    return rms_norm(hidden, norm.weight.shape, norm.weight, norm.epsilon)


def add_and_normalize(hidden: Tensor, added: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
    """The sum, and the sum normalized."""
    summed = hidden + added
    return summed, normalize(summed, norm)


def rotate_and_store(
    joined: Tensor,
    rotary: tuple[Tensor, Tensor],
    slots: Tensor,
    keys: Tensor,
    values: Tensor,
    norms: Sequence[Norm] | None,
) -> Tensor:
    """Apply rotary positions to queries and keys, store keys and values at their slots, (key heads,
    positions, size), and return the queries, (rows, heads, size).

    ``joined`` has a row's queries, keys and values, one after the other; ``norms`` are those of
    queries and of keys, where there are any.
    """
    key_heads, _, size = keys.shape
    heads = joined.view(len(joined), -1, size)
    count = heads.shape[1] - key_heads
    both = heads[:, :count]
    if norms:
        parts = both[:, :-key_heads], both[:, -key_heads:]
        both = torch.cat([normalize(*each) for each in zip(parts, norms, strict=True)], 1)
    # Two numbers half a head apart are one point, rotated by an angle.
    rotated = both * rotary[0] + both.roll(size // 2, -1) * rotary[1]
    keys.index_copy_(1, slots, rotated[:, -key_heads:].transpose(0, 1))
    values.index_copy_(1, slots, heads[:, count:].transpose(0, 1))
    return rotated[:, :-key_heads]


def attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Attention of queries, (rows, heads, size), to keys and values, (key heads, positions, size):
    (rows, heads * size)."""
    (rows, heads, size), key_heads, visible = query.shape, len(keys), mask.shape[-1]
    # Heads that share a key head are further queries of that one.
    grouped = query.view(rows, key_heads, -1, size).permute(1, 2, 0, 3)
    attended = scaled_dot_product_attention(
        grouped.reshape(1, key_heads, -1, size),
        keys[None, :, :visible],
        values[None, :, :visible],
        attn_mask=mask,
        scale=scale,
    )
    return attended.view(grouped.shape).permute(2, 0, 1, 3).reshape(rows, heads * size)


def gate(joined: Tensor) -> Tensor:
    """SiLU of the gate times the up projection, (rows, 2 * width): (rows, width)."""
    gated, up = joined.chunk(2, -1)
    return silu(gated).mul_(up)


OPS = LayerOps(prepare, normalize, add_and_normalize, rotate_and_store, attend, gate)
