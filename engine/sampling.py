"""Random tokens, drawn as `torch.multinomial` draws them, without its waits for the device.

Both run an exponential race: every token gets the noise e ~ Exp(1), and the tokens with the highest
p / e win. `torch.multinomial` also reads two checks back from the device first, and waits for each.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

IMPOSSIBLE = -1  # in place of a token, where no token has a positive probability


class Draws(NamedTuple):
    """Drawn tokens, and the random numbers that decided."""

    tokens: Tensor  # (…, count) on the host
    noise: Tensor  # (…, vocab) on the device


def multinomial(probs: Tensor, count: int, generator: torch.Generator) -> Draws:
    """Draw ``count`` different tokens from each row of probabilities, (…, vocab)."""
    noise = exponential_noise(probs, generator)
    return Draws(race(probs, noise, count).cpu(), noise)


def exponential_noise(like: Tensor, generator: torch.Generator) -> Tensor:
    """Exp(1) noise in the shape of a tensor."""
    return torch.empty_like(like).exponential_(1.0, generator=generator)


def race(probs: Tensor, noise: Tensor, count: int) -> Tensor:
    """The tokens that win the race, (…, count), first one first."""
    speed = probs.detach() / noise
    first = speed.max(-1, keepdim=True) if count == 1 else speed.topk(count)
    # Written so that NaN counts as impossible, too.
    return first.indices.masked_fill_(~(first.values[..., :1] > 0), IMPOSSIBLE)


def default_generator(device: torch.device) -> torch.Generator:
    """The generator that `generate` draws with on a device and that `set_seed` seeds."""
    if device.type != "cuda":
        return torch.default_generator
    index = torch.cuda.current_device() if device.index is None else device.index
    generator: torch.Generator = torch.cuda.default_generators[index]
    return generator
