"""What a decoder layer does between its matrix products, in few of torch's operations.

For a few rows an operation on a CPU is mostly the way to it, and a mask of truth values is turned
into numbers wherever it is used: here it is done once for all layers of a tick. Rounds where
transformers rounds. Knows torch. Refuses to know models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu


class Norm(NamedTuple):
    """A root-mean-square norm: its weight, and what keeps it from dividing by 0."""

    weight: Tensor
    epsilon: float


class Ready(NamedTuple):
    """What is the same for all layers of a tick."""

    angles: tuple[Tensor, Tensor]  # cosines and sines of the positions
    mask: Tensor


def ready(angles: Sequence[Tensor], mask: Tensor, groups: int) -> Ready:
    """Angles, (1, rows, size), and a mask, (rows, visible), as the steps below take them, where so
    many heads share a key head."""
    cos, sin = angles[0][0][:, None], angles[1][0][:, None]
    behind, before = sin.chunk(2, -1)
    added = torch.zeros_like(mask, dtype=cos.dtype).masked_fill_(~mask, -torch.inf)
    return Ready((cos, torch.cat([-behind, before], -1)), added.repeat(groups, 1)[None, None])


def normalize(hidden: Tensor, norm: Norm) -> Tensor:
    """Rows of hidden states, (…, width), normalized."""
    return rms_norm(hidden, norm.weight.shape, norm.weight, norm.epsilon)


def add_and_normalize(hidden: Tensor, added: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
    """The sum of two, and that normalized."""
    summed = hidden + added
    return summed, normalize(summed, norm)


def turn_and_write(
    joined: Tensor,
    angles: tuple[Tensor, Tensor],
    slots: Tensor,
    keys: Tensor,
    values: Tensor,
    norms: Sequence[Norm] | None,
) -> Tensor:
    """Turn queries and keys by the angles of their positions and write keys and values where they
    belong, (key heads, positions, size): the queries, (rows, heads, size).

    ``joined`` has a row's queries, keys and values, one after the other; ``norms`` are those of
    queries and of keys, where there are any.
    """
    shared, _, size = keys.shape
    heads = joined.view(len(joined), -1, size)
    count = heads.shape[1] - shared
    both = heads[:, :count]
    if norms:
        parts = both[:, :-shared], both[:, -shared:]
        both = torch.cat([normalize(*each) for each in zip(parts, norms, strict=True)], 1)
    # A pair of numbers that are half a head apart is a point, turned by an angle.
    turned = both * angles[0] + both.roll(size // 2, -1) * angles[1]
    keys.index_copy_(1, slots, turned[:, -shared:].transpose(0, 1))
    values.index_copy_(1, slots, heads[:, count:].transpose(0, 1))
    return turned[:, :-shared]


def attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float) -> Tensor:
    """What rows of queries, (rows, heads, size), make of keys and values, (key heads, positions,
    size): (rows, heads * size)."""
    (rows, heads, size), shared, visible = query.shape, len(keys), mask.shape[-1]
    # Heads that share a key head are further queries of that one.
    grouped = query.view(rows, shared, -1, size).permute(1, 2, 0, 3)
    attended = scaled_dot_product_attention(
        grouped.reshape(1, shared, -1, size),
        keys[None, :, :visible],
        values[None, :, :visible],
        attn_mask=mask,
        scale=scale,
    )
    return attended.view(grouped.shape).permute(2, 0, 1, 3).reshape(rows, heads * size)


def gate(joined: Tensor) -> Tensor:
    """Of a gate and what it lets through, (rows, 2 * width), what comes through: (rows, width)."""
    opened, through = joined.chunk(2, -1)
    return silu(opened).mul_(through)
