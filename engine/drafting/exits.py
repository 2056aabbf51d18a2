"""Trained early exits: small networks that predict the next token from an early layer's state.

Elhoushi et al. 2024, "LayerSkip: Enabling Early Exit Inference and Self-Speculative Decoding",
train the model's layers to be left early. Here the model stays as it is, and only the exit is
trained.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.functional import silu


class ExitLayers(NamedTuple):
    """What follows a model's first layers, in place of its last norm and its output matrix."""

    norm: nn.Module
    head: nn.Module


class Exit(nn.Module):
    """A gated network and a norm in place of a model's last norm; untrained, it equals that
    norm."""

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
        """From states after some layer, (…, width), to states for the output matrix, (…, width)."""
        states = states.to(self.after.weight.dtype)
        normed = self.before(states)
        change = self.down_proj(silu(self.gate_proj(normed)) * self.up_proj(normed))
        result: Tensor = self.after(states + change)
        return result
