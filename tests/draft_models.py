"""Tiny target models and draft models for tests of speculative decoding."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from engine.drafting.exits import Exit
from engine.drafting.heads import Heads
from engine.models import quantized_weights, trained
from engine.models.model import Model
from tests.tiny import ALPHABET, KINDS, SHAPE, SIZE, SPECIAL, TOKENS, tiny

WORDS = [*SPECIAL, *ALPHABET]
PLAIN = {chr(code) for code in range(33, 127)}


@cache
def draft(kind: str, how: str) -> Any:
    """A draft model for a tiny model: similar (good), unrelated (bad) or opposite (adversarial)."""
    torch.manual_seed(8 if how == "bad" else 7)
    module = KINDS[kind]()
    if how == "good":
        for weights in module.parameters():
            weights.data += 0.05 * weights.data.std() * torch.randn_like(weights)
    if how == "adversarial":
        head = module.get_output_embeddings()
        opposite = nn.Linear(head.in_features, head.out_features, bias=False)
        opposite.weight.data = -head.weight.data  # prefers the target's least probable tokens
        module.set_output_embeddings(opposite)
    return replace(tiny(kind), name=f"{kind}, {how}", module=module.eval())


@cache
def deep(layers: int, *, tied: bool = False) -> Any:
    """A Llama with this many layers, optionally with tied embeddings."""
    torch.manual_seed(7)
    shape = {**SHAPE, "num_hidden_layers": layers, "tie_word_embeddings": tied}
    module = LlamaForCausalLM(LlamaConfig(**shape, **TOKENS)).eval()
    return replace(tiny("llama"), name=f"{layers} layers", module=module)


@cache
def padded(rows: int) -> Any:
    """A Llama whose vocabulary has this many rows more than its tokenizer."""
    torch.manual_seed(9)
    module = LlamaForCausalLM(LlamaConfig(**{**SHAPE, "vocab_size": SIZE + rows}, **TOKENS)).eval()
    return replace(tiny("llama"), name=f"padded by {rows}", module=module)


@cache
def readable(reverse: bool = False) -> Any:
    """A Llama that writes plain ASCII, optionally with its vocabulary in reverse order."""
    torch.manual_seed(7)
    module = LlamaForCausalLM(LlamaConfig(**SHAPE, **TOKENS)).eval()
    plain = torch.tensor([token in PLAIN for token in WORDS])
    module.lm_head.weight.data[~plain] = 0.0  # the best logit is above that
    if not reverse:
        return replace(tiny("llama"), name="readable", module=module)
    order = [*range(len(SPECIAL)), *reversed(range(len(SPECIAL), SIZE))]
    for embedding in (module.lm_head, module.model.embed_tokens):
        embedding.weight.data = embedding.weight.data[order]
    spelling = json.loads(tiny("llama").tokenizer.backend_tokenizer.to_str())
    spelling["model"]["vocab"] = {WORDS[old]: new for new, old in enumerate(order)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(spelling)), bos_token="<s>", eos_token="</s>"
    )
    return replace(tiny("llama"), name="reversed", module=module, tokenizer=tokenizer)


def train(target: Model, folder: Path, patch: pytest.MonkeyPatch, *, kept: int = 150) -> None:
    """Save a draft model, heads and an exit for a tiny Llama, as if they had been trained.

    The draft model is the target's first layer; heads and exit are random. All of them score only
    the last ``kept`` tokens of the vocabulary.
    """
    module: Any = target.module
    embedding, output = module.model.embed_tokens.weight.data, module.lm_head.weight.data
    ids = torch.arange(len(output) - kept, len(output), dtype=torch.int32)
    own = {
        name: weight
        for name, weight in module.state_dict().items()
        if name.startswith(("model.layers.0.", "model.norm"))
    }
    quantized_weights.save({"kept": ids, **own}, {"layers": 1}, folder / "tiny-draft.safetensors")
    torch.manual_seed(3)
    heads = Heads(embedding, output, ids, inner=16, depth=2).state_dict()
    halves = list(heads.items())[:3], list(heads.items())[3:]
    for number, half in enumerate(halves):
        about = {"inner": 16, "depth": 2}
        file = folder / f"tiny-heads-{number}.safetensors"
        quantized_weights.save({**dict(half), **({} if number else {"kept": ids})}, about, file)
    leaving = Exit(module.model.norm, inner=16)
    nn.init.normal_(leaving.down_proj.weight)
    exits = nn.ModuleDict({"1": leaving}).state_dict()
    quantized_weights.save({"kept": ids, **exits}, {"inner": 16}, folder / "tiny-exits.safetensors")
    patch.setattr(trained, "FOLDER", folder)
    patch.setitem(trained.TARGETS, "tiny", trained.Fingerprint.of(embedding))
