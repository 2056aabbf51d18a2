"""A language model and its tokenizer, together.

Knows what both can be asked. Refuses to know where they come from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Model:
    """A language model ready for use, and the tokenizer it was trained with."""

    name: str
    module: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase

    @property
    def device(self) -> torch.device:
        """Where the token ids go in."""
        return self.module.device

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether the prompt is read by an encoder of its own."""
        return bool(self.module.config.is_encoder_decoder)

    def generate(self, **arguments: Any) -> Any:
        """Call transformers' own `generate`."""
        generate: Any = self.module.generate
        return generate(**arguments)

    @property
    def context_length(self) -> int | None:
        """How many tokens fit, or None where nothing limits or declares it."""
        config = self.module.config.get_text_config(decoder=True)
        if hasattr(config, "relative_attention_num_buckets"):  # T5 may declare a length it has not
            return None
        keys = ("max_position_embeddings", "n_positions", "max_seq_len")
        return next((int(n) for n in (getattr(config, key, None) for key in keys) if n), None)
