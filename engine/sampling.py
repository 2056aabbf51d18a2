"""Random tokens, drawn as `torch.multinomial` draws them, with one question to the device.

Knows rows of probabilities. Refuses to know where they come from and what is drawn for.
"""

from __future__ import annotations

import torch
from torch import Tensor

NOTHING = -1  # in place of a token, where nothing can be drawn


def drawn(probs: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draw different tokens from rows of probabilities, (…, vocab): (…, count) on the host.

    The same that `torch.multinomial` draws with the same generator: it too lets an exponential
    clock run for every token and takes the first to ring. But before that it asks the device
    whether it may, and waits for the answer, twice.
    """
    return first_to_ring(probs, clocks(probs, generator), count).cpu()


def clocks(like: Tensor, generator: torch.Generator) -> Tensor:
    """When the clock of every token would ring if all were as probable."""
    return torch.empty_like(like).exponential_(1.0, generator=generator)


def first_to_ring(probs: Tensor, clocks: Tensor, count: int) -> Tensor:
    """The tokens whose clocks ring first, (…, count); the clocks are of no use any more."""
    sooner = torch.div(probs.detach(), clocks, out=clocks)
    first = sooner.max(-1, keepdim=True) if count == 1 else sooner.topk(count)
    # Not above 0 where nothing has a chance, nor where something is not a number.
    return first.indices.masked_fill_(~(first.values[..., :1] > 0), NOTHING)


def default_generator(device: torch.device) -> torch.Generator:
    """The generator that `generate` draws with on a device, and `set_seed` seeds."""
    if device.type != "cuda":
        return torch.default_generator
    at = torch.cuda.current_device() if device.index is None else device.index
    found: torch.Generator = torch.cuda.default_generators[at]
    return found
