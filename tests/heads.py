"""Draft heads for tests: random ones, and ones that predict their model correctly."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from engine.drafting.heads import Heads
from engine.models.model import Model
from tests.tiny import SHAPE, TOKENS, tiny


def weights(model: Model) -> tuple[Tensor, Tensor]:
    """Return a model's embeddings and output matrix."""
    module: Any = model.module
    embedding = module.get_input_embeddings().weight.detach()
    return embedding, module.get_output_embeddings().weight.detach()


def random_heads(model: Model, depth: int = 3, kept: int | None = None) -> Heads:
    """Heads with random weights that score the last ``kept`` tokens, by default all."""
    torch.manual_seed(3)
    embedding, output = weights(model)
    ids = torch.arange(len(output) - (kept or len(output)), len(output))
    return Heads(embedding, output, ids, 16, depth).eval().requires_grad_(False)


@cache
def bigram_model(memory: float = 0.0) -> Model:
    """A Llama that depends on the last token only, or with ``memory`` slightly on earlier ones."""
    torch.manual_seed(11)
    module = LlamaForCausalLM(LlamaConfig(**SHAPE, **TOKENS)).eval()
    for layer in module.model.layers:
        layer.self_attn.o_proj.weight.data *= memory
        layer.mlp.down_proj.weight.data *= memory
    return replace(tiny("llama"), name=f"bigram {memory}", module=module)


class ExactHeads(Heads):
    """Heads that predict the next token of a bigram model."""

    norm: Any
    noise: Tensor

    def state(self, depth: int, states: Tensor, tokens: Tensor) -> Tensor:
        """The state after a token, which depends on that token only."""
        state: Tensor = self.norm(self._embedding[0][tokens])
        return state

    def logits(self, states: Tensor) -> Tensor:
        """The model's logits plus the same noise for every state."""
        return super().logits(states) + self.noise


def exact_heads(model: Model, depth: int = 4, noise: float = 0.0) -> Heads:
    """Heads that predict a bigram model exactly, or with noise."""
    embedding, output = weights(model)
    heads = ExactHeads(embedding, output, torch.arange(len(output)), 4, depth).requires_grad_(False)
    module: Any = model.module
    heads.norm = module.model.norm
    heads.noise = noise * torch.randn(len(output), generator=torch.Generator().manual_seed(5))
    return heads
