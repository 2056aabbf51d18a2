"""Prompts: text or a chat, as tokens, with the tokens that decoding starts from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from engine.errors import PlaygroundError
from engine.models.model import Model
from engine.trie.backend import OutputRow
from engine.trie.cell import Cell

Chat = Sequence[Mapping[str, str]]


@dataclass(frozen=True, eq=False)
class Encoded:
    """The encoder's output for a prompt."""

    state: Tensor  # (1, length, width)
    mask: Tensor  # (1, length)

    def outputs(self, rows: int = 1) -> BaseModelOutput:
        """The output for several rows, in a new container, because `generate` writes into it."""
        state: Any = self.state.expand(rows, -1, -1)
        return BaseModelOutput(last_hidden_state=state)


@dataclass(eq=False)
class Prompt:
    """A prompt, and its root in the trie once it is evaluated."""

    text: str
    ids: list[int]  # the prompt's tokens
    start: list[int]  # what decoding continues: prompt or decoder start token, and the prefix
    context: Encoded | None = None
    padding: Sequence[int] = ()  # before the start; counts in lengths, is not evaluated
    prefix: Sequence[int] = ()  # given text after the prompt
    root: tuple[Cell, OutputRow] | None = None  # its last token in the trie, once evaluated


def tokens_of(model: Model, prompt: str | Chat) -> tuple[str, list[int]]:
    """A prompt's text as the model sees it, a chat with its template applied, and its tokens."""
    tokenizer = model.tokenizer
    if isinstance(prompt, str):
        if not prompt.strip():
            raise PlaygroundError(
                "the prompt is empty; write a few words for the model to continue"
            )
        return prompt, list(tokenizer(prompt).input_ids)
    text = _chat_text(model, prompt)
    return text, list(tokenizer(text, add_special_tokens=False).input_ids)


def read(model: Model, text: str, ids: list[int], prefix: Sequence[int] = ()) -> Prompt:
    """A prompt with its prefix, ready to decode from; an encoder evaluates it now."""
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
        max_length=None,
        min_length=0,
        num_beams=1,
        custom_generate=_first_ids,
    )
    return Prompt(text, ids, [*start, *prefix], encoded, prefix=prefix)


def _first_ids(model: Any, input_ids: Tensor, **kwargs: Any) -> list[int]:
    """The tokens with which `generate` starts a decoder."""
    return [int(id) for id in input_ids[0]]


def _chat_text(model: Model, messages: Chat) -> str:
    for message in messages:
        if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys():
            raise PlaygroundError(
                f"a chat message is {message!r}; it must be a mapping with 'role' and 'content'"
            )
    if not any(message["content"].strip() for message in messages):
        raise PlaygroundError("the chat is empty; write at least one message")
    if not model.tokenizer.chat_template:
        raise PlaygroundError(f"{model.name} has no chat template; give the prompt as text")
    text = model.tokenizer.apply_chat_template(
        [dict(message) for message in messages], tokenize=False, add_generation_prompt=True
    )
    assert isinstance(text, str)
    return text
