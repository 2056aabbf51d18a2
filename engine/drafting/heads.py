"""Draft heads: small networks that predict the tokens after the next one from a model's state.

Cai et al. 2024, "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads".
Each head also reads the token before the one it drafts, as in Ankner et al. 2024, "Hydra:
Sequentially-Dependent Draft Heads for Medusa Decoding".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm, silu

from engine.accel.packed_linear import LinearGroup, group_of


class Head(nn.Module):
    """Predicts the model's next state from its state and the token taken there."""

    def __init__(self, width: int, states: int, inner: int) -> None:
        super().__init__()
        inputs = (states + 1) * width
        self.gate = nn.Linear(inputs, inner, bias=False)
        self.up = nn.Linear(inputs, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, states: Tensor, embedded: Tensor) -> Tensor:
        """The next state, (…, width), from states, (…, states, width), and an embedded token, (…,
        width): a change of the last state."""
        inputs = torch.cat([states, embedded[..., None, :]], dim=-2)
        normed = rms_norm(inputs, inputs.shape[-1:]).flatten(-2)
        change: Tensor = self.down(silu(self.gate(normed)) * self.up(normed))
        return states[..., -1, :] + change

    @cached_property
    def joined(self) -> LinearGroup:
        """Gate and up as one product, for a head that stays on its device."""
        return group_of([self.gate, self.up], join=True)


class Heads(nn.Module):
    """The heads of a model, one for each depth of a draft.

    The first head reads the model's states after some of its ``layers``, of which the last is the
    model's last: a middle layer knows more of the text than the next token (Li et al. 2025,
    "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time Test").
    Embeddings and output matrix are the model's own, the latter for the tokens ``kept`` only:
    scoring a whole vocabulary takes longer than all the rest of a head.
    """

    kept: Tensor
    output: Tensor

    def __init__(
        self,
        embedding: Tensor,
        output: Tensor,
        kept: Tensor,
        inner: int,
        depth: int,
        layers: Sequence[int] = (-1,),
    ) -> None:
        super().__init__()
        self.layers = list(layers)
        self._embedding = [
            embedding
        ]  # (vocabulary, width); in a list, so that it is no weight of this module
        self.register_buffer(
            "kept", kept, persistent=False
        )  # (kept,) token ids, most frequent first
        self.register_buffer("output", output[kept], persistent=False)  # (kept, width)
        width = embedding.shape[1]
        read = [len(layers), *[1] * (depth - 1)]  # states that each head reads
        self.heads = nn.ModuleList(Head(width, states, inner) for states in read)

    def reset(self) -> None:
        """Initialize for training: heads that leave the state unchanged."""
        for name, weight in self.named_parameters():
            if name.endswith("down.weight"):
                nn.init.zeros_(weight)

    @property
    def embedding(self) -> Tensor:
        """The model's own embeddings, (vocabulary, width)."""
        return self._embedding[0]

    @property
    def depth(self) -> int:
        """How many tokens a draft can have."""
        return len(self.heads)

    def state(self, depth: int, states: Tensor, tokens: Tensor) -> Tensor:
        """The states after tokens, (rows,), at a depth of the draft, from 0: (rows, width).

        At depth 0 the states are the model's own, (rows, layers, width), where it took the tokens.
        """
        states = states if depth == 0 else states[..., None, :]
        head: Head = self.heads[depth]  # type: ignore[assignment]  # a list of modules has no types
        embedded = self.embedding[tokens].to(states.dtype)
        after: Tensor = head(states, embedded)
        return after

    def logits(self, states: Tensor) -> Tensor:
        """The scores of the kept tokens: (rows, kept)."""
        return states @ self.output.T
