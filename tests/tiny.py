"""Tiny models with random weights, and transformers' own `generate` as the reference for them."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    Gemma2Config,
    Gemma2ForCausalLM,
    GemmaConfig,
    GemmaForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    set_seed,
)

from engine.models.model import Model
from engine.trace import Trace

SPECIAL = ["<pad>", "<s>", "</s>"]
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
SIZE = len(SPECIAL) + len(ALPHABET)

SHAPE: dict[str, Any] = {
    "vocab_size": SIZE,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    # Large weights give varied distributions: near ties are rare, and attention matters.
    "initializer_range": 0.4,
}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SEQ2SEQ = {**TOKENS, "decoder_start_token_id": 0, "vocab_size": SIZE, "d_model": 32}

TRIE = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, **TOKENS)),
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(
            vocab_size=SIZE,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=256,
            initializer_range=0.4,
            **TOKENS,
        )
    ),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SHAPE, **TOKENS)),
    "gemma": lambda: GemmaForCausalLM(GemmaConfig(**SHAPE, **TOKENS)),
    "gemma2": lambda: Gemma2ForCausalLM(Gemma2Config(**SHAPE, **TOKENS, sliding_window=128)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**SHAPE, **TOKENS, sliding_window=128)),
}
PLAIN = {
    "t5": lambda: T5ForConditionalGeneration(
        T5Config(**SEQ2SEQ, d_kv=8, d_ff=64, num_layers=2, num_heads=4, initializer_factor=8.0)
    ),
    "bart": lambda: BartForConditionalGeneration(
        BartConfig(
            **{**SEQ2SEQ, "decoder_start_token_id": 2},
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            max_position_embeddings=256,
            init_std=0.4,
            forced_eos_token_id=2,
        )
    ),
    "mamba": lambda: MambaForCausalLM(
        MambaConfig(vocab_size=SIZE, hidden_size=32, num_hidden_layers=2, state_size=8, **TOKENS)
    ),
    "mistral-short-window": lambda: MistralForCausalLM(
        MistralConfig(**SHAPE, **TOKENS, sliding_window=8)
    ),
}
KINDS = {**TRIE, **PLAIN}


@cache
def tiny(kind: str) -> Model:
    """Return the tiny model of an architecture, always the same one; every byte is a token."""
    torch.manual_seed(7)
    module = KINDS[kind]().eval()
    return Model(kind, module, _tokenizer())


def _tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {token: id for id, token in enumerate([*SPECIAL, *ALPHABET])}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(SPECIAL)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )


def generate(
    model: Model, prompt: str, settings: dict[str, Any], seed: int
) -> tuple[list[list[int]], list[float] | None]:
    """Return new tokens without padding, and scores, from transformers' own `generate`."""
    inputs = model.tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)
    set_seed(seed)
    output = model.module.generate(
        **inputs, **settings, return_dict_in_generate=True, output_scores=True
    )
    start = 1 if model.is_encoder_decoder else inputs.input_ids.shape[1]
    rows = [_unpadded(row[start:].tolist(), model) for row in output.sequences]
    scores = getattr(output, "sequences_scores", None)
    return rows, None if scores is None else scores.tolist()


def _unpadded(ids: list[int], model: Model) -> list[int]:
    end = model.module.generation_config.eos_token_id
    return ids[: ids.index(end) + 1] if end in ids else ids


def assert_same_tokens(trace: Trace, expected: list[list[int]]) -> None:
    """Assert equal tokens; greedy tokens may differ after a near tie.

    A near tie is a gap below 1e-3 at the first difference: summing in another order may then change
    the choice, and everything after it.
    """
    got = [list(sequence.token_ids) for sequence in trace.sequences]
    if got == expected or trace.strategy != "greedy":
        assert got == expected
        return
    pairs = zip(got[0], expected[0], strict=False)
    first = next(at for at, (ours, theirs) in enumerate(pairs) if ours != theirs)
    step = trace.steps[trace.sequences[0].steps[first]]
    log_probs = {c.token.id: math.log(c.final) for c in step.distribution.candidates if c.final}
    gap = log_probs[got[0][first]] - log_probs.get(expected[0][first], -math.inf)
    assert gap < 1e-3, f"token {first}: {got[0][first]} beats {expected[0][first]} by {gap}"
