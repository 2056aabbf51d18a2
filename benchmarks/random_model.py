"""A model of SmolLM2-135M's shape with random weights, for machines that cannot download it.

The time of a forward pass does not depend on the weights' values.
"""

from __future__ import annotations

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from engine.models.model import Model

VOCABULARY = 49_152
SHAPE = LlamaConfig(
    vocab_size=VOCABULARY,
    hidden_size=576,
    intermediate_size=1536,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    max_position_embeddings=8192,
    tie_word_embeddings=True,
    rope_theta=100_000.0,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    # Large weights give uneven distributions: near-ties are rare.
    initializer_range=0.1,
)


def random_model(device: str, dtype: torch.dtype) -> Model:
    """The same weights every time; every byte is a token, the other tokens are numbered."""
    torch.manual_seed(7)
    module = LlamaForCausalLM(SHAPE).eval().requires_grad_(False)
    # No end token: every text reaches its full length.
    module.generation_config.eos_token_id = None
    module.generation_config.pad_token_id = 0
    return Model("random", module.to(device=device, dtype=dtype), _tokenizer())


def _tokenizer() -> PreTrainedTokenizerFast:
    tokens = ["<pad>", "<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokens += [f"token{number}" for number in range(len(tokens), VOCABULARY)]
    backend = Tokenizer(models.BPE(vocab={text: id for id, text in enumerate(tokens)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )
