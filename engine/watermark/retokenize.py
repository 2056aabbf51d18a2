"""Tokenizes the text for a detector, and compares tokens with those of their decoded text."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from transformers import PreTrainedTokenizerBase

from engine.errors import PlaygroundError
from engine.models.model import Model
from engine.settings import Limits
from engine.trace.token_text import TokenDecoder


def ids_of(model: Model, text: str | Sequence[int], limits: Limits) -> list[int]:
    """The tokens of a text, or the given token ids after a check."""
    if isinstance(text, str):
        if len(text) > (most := limits.detect_characters):
            raise PlaygroundError(f"the text has {len(text)} characters; at most {most} are read")
        return _encoded(model, text)
    if isinstance(text, bytes | bytearray):
        raise PlaygroundError("the text is of type bytes; it must be a str or a list of token ids")
    try:
        ids = [operator.index(id) for id in text]
    except TypeError as error:
        kind = type(text).__name__
        raise PlaygroundError(
            f"the text is of type {kind}; it must be a str or a list of token ids"
        ) from error
    known = max(len(model.tokenizer), model.module.config.get_text_config().vocab_size)
    if unknown := [id for id in ids if not 0 <= id < known]:
        raise PlaygroundError(
            f"token id {unknown[0]} is not in the vocabulary of {model.name}, which has ids 0 to"
            f" {known - 1}"
        )
    return ids


def round_trip(model: Model, ids: Sequence[int]) -> list[int]:
    """The tokens after decoding to text and encoding again."""
    text: Any = model.tokenizer.decode(
        list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    return _encoded(model, text)


def survivors(model: Model, ids: Sequence[int], read: Sequence[int]) -> int:
    """How many tokens are in both, with the same id at the same characters."""
    return (_spans(model, ids) & _spans(model, read)).total()


def token_texts(model: Model, ids: Sequence[int]) -> list[str]:
    """What each token adds to the text; a character split over tokens belongs to the last one."""
    token_decoder, texts = _token_decoder(model.tokenizer), []
    pending: tuple[int, ...] = ()
    for id in ids:
        text, pending = token_decoder.add(pending, id)
        texts.append(text)
    if pending:
        texts[-1] = token_decoder.text(pending)
    return texts


def _spans(model: Model, ids: Sequence[int]) -> Counter[tuple[int, int]]:
    special = set(model.tokenizer.all_special_ids)
    kept = [id for id in ids if id not in special]
    spans, at = Counter[tuple[int, int]](), 0
    for id, text in zip(kept, token_texts(model, kept), strict=True):
        spans[at, id] += 1
        at += len(text)
    return spans


def _encoded(model: Model, text: str) -> list[int]:
    # Pasted text may hold half a surrogate pair, which tokenizers reject.
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    ids: list[int] = model.tokenizer(whole, add_special_tokens=False, verbose=False).input_ids
    return ids


@lru_cache(maxsize=4)
def _token_decoder(tokenizer: PreTrainedTokenizerBase) -> TokenDecoder:
    return TokenDecoder(tokenizer)
