"""A text as a detector meets it: read as tokens, spelled out, and read again after decoding.

Knows tokenizers, and what people paste: broken characters, other languages, nothing. Refuses to
know watermarks.
"""

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
from engine.trace.token_text import Speller


def ids_of(model: Model, text: str | Sequence[int], limits: Limits) -> list[int]:
    """The tokens of a text, or those given; what is neither is refused."""
    if isinstance(text, str):
        if len(text) > (most := limits.detect_characters):
            raise PlaygroundError(f"the text has {len(text)} characters; at most {most} are read")
        return _encoded(model, text)
    if isinstance(text, bytes | bytearray):
        raise PlaygroundError("a text is given as characters or as token ids, not as bytes")
    try:
        ids = [operator.index(id) for id in text]
    except TypeError as error:
        kind = type(text).__name__
        raise PlaygroundError(f"a text or a list of token ids is judged, not {kind}") from error
    known = max(len(model.tokenizer), model.module.config.get_text_config().vocab_size)
    if strange := [id for id in ids if not 0 <= id < known]:
        raise PlaygroundError(f"token id {strange[0]} is none of {model.name}: 0 to {known - 1}")
    return ids


def again(model: Model, ids: Sequence[int]) -> list[int]:
    """The tokens these become once they are copied as a text: decoded and encoded again."""
    text: Any = model.tokenizer.decode(
        list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    return _encoded(model, text)


def survivors(model: Model, ids: Sequence[int], read: Sequence[int]) -> int:
    """How many tokens stand in both with the same id at the same characters."""
    return (_spans(model, ids) & _spans(model, read)).total()


def spelled(model: Model, ids: Sequence[int]) -> list[str]:
    """What each token adds to the text; characters split over tokens come with their last one."""
    speller, texts = _speller(model.tokenizer), []
    pending: tuple[int, ...] = ()
    for id in ids:
        text, pending = speller.add(pending, id)
        texts.append(text)
    if pending:
        texts[-1] = speller.text(pending)
    return texts


def _spans(model: Model, ids: Sequence[int]) -> Counter[tuple[int, int]]:
    special = set(model.tokenizer.all_special_ids)
    kept = [id for id in ids if id not in special]
    spans, at = Counter[tuple[int, int]](), 0
    for id, text in zip(kept, spelled(model, kept), strict=True):
        spans[at, id] += 1
        at += len(text)
    return spans


def _encoded(model: Model, text: str) -> list[int]:
    # Half a surrogate pair is no character, and no tokenizer takes it.
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    ids: list[int] = model.tokenizer(whole, add_special_tokens=False, verbose=False).input_ids
    return ids


@lru_cache(maxsize=4)
def _speller(tokenizer: PreTrainedTokenizerBase) -> Speller:
    return Speller(tokenizer)
