"""A language model together with its tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Model:
    """A loaded language model and its tokenizer."""

    name: str
    module: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase

    @property
    def device(self) -> torch.device:
        """The device of the model's input."""
        return self.module.device

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether the model has a separate encoder for the prompt."""
        return bool(self.module.config.is_encoder_decoder)

    def generate(self, **arguments: Any) -> Any:
        """Call transformers' own `generate`."""
        generate: Any = self.module.generate
        return generate(**arguments)

    @property
    def context_length(self) -> int | None:
        """The largest number of positions, or None if the model has no such limit."""
        config = self.module.config.get_text_config(decoder=True)
        if hasattr(config, "relative_attention_num_buckets"):  # T5: unlimited, despite its config
            return None
        keys = ("max_position_embeddings", "n_positions", "max_seq_len")
        return next((int(n) for n in (getattr(config, key, None) for key in keys) if n), None)
