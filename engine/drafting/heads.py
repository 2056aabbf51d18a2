"""Draft heads: small networks that say, from one state of a model, what may come next but one, and
so on.

Cai et al. 2024, "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads".
Each head also reads the token before the one it drafts, as in Ankner et al. 2024, "Hydra:
Sequentially-Dependent Draft Heads for Medusa Decoding". Knows the network. Refuses to know trees,
and how drafts are judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm, silu

from engine.accel.packed_linear import LinearGroup, group_of


class Head(nn.Module):
    """From a state and the token taken there to the state that follows, were it the model's."""

    def __init__(self, width: int, states: int, inner: int) -> None:
        super().__init__()
        given = (states + 1) * width
        self.gate = nn.Linear(given, inner, bias=False)
        self.up = nn.Linear(given, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, states: Tensor, embedded: Tensor) -> Tensor:
        """The next state, (…, width), of states, (…, states, width), the last of which it changes,
        and an embedded token, (…, width)."""
        every = torch.cat([states, embedded[..., None, :]], dim=-2)
        given = rms_norm(every, every.shape[-1:]).flatten(-2)
        further: Tensor = self.down(silu(self.gate(given)) * self.up(given))
        return states[..., -1, :] + further

    @cached_property
    def joined(self) -> LinearGroup:
        """Gate and up as one product, for a head that stays on its device."""
        return group_of([self.gate, self.up], join=True)


class Heads(nn.Module):
    """The heads of a model, one for each depth of a draft.

    The first head reads the model's states after some of its ``layers``, the last one being the
    last: one in the middle knows more of the text than what comes next (Li et al. 2025, "EAGLE-3:
    Scaling up Inference Acceleration of Large Language Models via Training-Time Test"). Embeddings
    and the rows of the output matrix are the model's own, the latter for the tokens ``kept`` alone:
    to score a whole vocabulary takes longer than all the rest of a head.
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
        self._embedding = [embedding]  # (vocabulary, width); in a list: it stays the model's
        self.register_buffer("kept", kept, persistent=False)  # (kept,) ids, commonest first
        self.register_buffer("output", output[kept], persistent=False)  # (kept, width)
        width = embedding.shape[1]
        read = [len(layers), *[1] * (depth - 1)]  # states, by each of the heads
        self.heads = nn.ModuleList(Head(width, states, inner) for states in read)

    def begin(self) -> None:
        """Start to learn from heads that leave the state as it is."""
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

        At depth 0 the states are the model's own, (rows, layers, width), and the tokens those it
        took there.
        """
        states = states if depth == 0 else states[..., None, :]
        head: Head = self.heads[depth]  # type: ignore[assignment]  # a list of modules has no types
        embedded = self.embedding[tokens].to(states.dtype)
        after: Tensor = head(states, embedded)
        return after

    def logits(self, states: Tensor) -> Tensor:
        """What may follow: (rows, kept)."""
        return states @ self.output.T
