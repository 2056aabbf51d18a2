"""Exits: small networks that make of a model's state after a few layers what it would say in the
end.

Elhoushi et al. 2024, "LayerSkip: Enabling Early Exit Inference and Self-Speculative Decoding",
train the layers themselves for that; here the model stays as it is, and what follows its first
layers is trained. Knows the network. Refuses to know which layers come before it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.functional import silu


class Leaving(NamedTuple):
    """What follows a model's first layers, in the place of its norm and of its output matrix."""

    norm: nn.Module
    head: nn.Module


class Exit(nn.Module):
    """A gated network and a norm, in the place of a model's last norm, which it begins as."""

    def __init__(self, norm: Any, inner: int) -> None:
        super().__init__()
        width, epsilon = len(norm.weight), norm.variance_epsilon
        self.before = nn.RMSNorm(width, epsilon)
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)
        self.after = nn.RMSNorm(width, epsilon)
        nn.init.zeros_(self.down_proj.weight)
        self.to(norm.weight.device)
        self.after.load_state_dict({"weight": norm.weight.float()})

    def forward(self, states: Tensor) -> Tensor:
        """(…, width) after some layer to (…, width) that the output matrix reads."""
        states = states.to(self.after.weight.dtype)
        given = self.before(states)
        further = self.down_proj(silu(self.gate_proj(given)) * self.up_proj(given))
        own: Tensor = self.after(states + further)
        return own
