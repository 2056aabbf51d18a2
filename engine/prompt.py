"""Prompts: raw text or a chat, in tokens, with where decoding starts from them.

Knows tokenizers, chat templates and encoders. Refuses to know runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from engine.errors import PlaygroundError
from engine.models.model import Model
from engine.trie.backend import Place
from engine.trie.cell import Cell

Chat = Sequence[Mapping[str, str]]


@dataclass(frozen=True, eq=False)
class Encoded:
    """What an encoder made of a prompt."""

    state: Tensor  # (1, length, width)
    mask: Tensor  # (1, length)

    def outputs(self, rows: int = 1) -> BaseModelOutput:
        """The state for several rows, in a container of their own: `generate` writes into it."""
        state: Any = self.state.expand(rows, -1, -1)
        return BaseModelOutput(last_hidden_state=state)


@dataclass(eq=False)
class Prompt:
    """A prompt the model has read, or is about to."""

    text: str
    ids: list[int]  # the prompt's tokens
    start: list[int]  # what decoding goes on from: the prompt or a decoder's start, and the prefix
    context: Encoded | None = None
    padding: Sequence[int] = ()  # before the start, for those who count tokens; no model reads it
    prefix: Sequence[int] = ()  # what already stands after the prompt
    root: tuple[Cell, Place] | None = None  # where it ends in the trie, once evaluated


def tokens_of(model: Model, prompt: str | Chat) -> tuple[str, list[int]]:
    """A prompt's text as the model sees it, and its tokens."""
    tokenizer = model.tokenizer
    if isinstance(prompt, str):
        if not prompt.strip():
            raise PlaygroundError(
                "the prompt is empty; write a few words for the model to go on from"
            )
        return prompt, list(tokenizer(prompt).input_ids)
    text = _chat_text(model, prompt)
    return text, list(tokenizer(text, add_special_tokens=False).input_ids)


def read(model: Model, text: str, ids: list[int], prefix: Sequence[int] = ()) -> Prompt:
    """The prompt, and what stands after it, ready to decode from; an encoder reads it now."""
    if not model.is_encoder_decoder:
        return Prompt(text, ids, [*ids, *prefix], prefix=prefix)
    inputs = torch.tensor([ids], device=model.device)
    mask = torch.ones_like(inputs)
    with torch.no_grad():
        state = model.module.get_encoder()(input_ids=inputs, attention_mask=mask)[0]
    encoded = Encoded(state, mask)
    start = model.generate(
        input_ids=inputs,
        attention_mask=mask,
        encoder_outputs=encoded.outputs(),
        max_new_tokens=1,
        num_beams=1,
        custom_generate=_first_ids,
    )
    return Prompt(text, ids, [*start, *prefix], encoded, prefix=prefix)


def _first_ids(model: Any, input_ids: Tensor, **kwargs: Any) -> list[int]:
    """What `generate` lets a decoder begin with."""
    return [int(id) for id in input_ids[0]]


def _chat_text(model: Model, messages: Chat) -> str:
    for message in messages:
        if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys():
            raise PlaygroundError(f"a chat is a list of {{'role', 'content'}}, not {message!r}")
    if not any(message["content"].strip() for message in messages):
        raise PlaygroundError("the chat is empty; write a message for the model to answer")
    if not model.tokenizer.chat_template:
        raise PlaygroundError(f"{model.name} has no chat template; give the prompt as plain text")
    text = model.tokenizer.apply_chat_template(
        [dict(message) for message in messages], tokenize=False, add_generation_prompt=True
    )
    assert isinstance(text, str)
    return text
