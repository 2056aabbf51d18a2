"""Texts of one tokenizer in the tokens of another, for a draft model with a vocabulary of its own.

Timor et al. 2025, "Accelerating LLM Inference with Lossless Speculative Decoding Algorithms for
Heterogeneous Vocabularies". Knows two tokenizers. Refuses to know models.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from transformers import PreTrainedTokenizerBase

from engine.trace.token_text import INCOMPLETE

WINDOW = 10  # tokens before the new ones that are spelled along: no token is longer than that


@lru_cache(maxsize=8)  # a vocabulary takes tens of milliseconds to read
def alike(one: PreTrainedTokenizerBase, other: PreTrainedTokenizerBase) -> bool:
    """Whether two tokenizers have the same tokens, so that there is nothing to spell anew."""
    return one is other or bool(one.get_vocab() == other.get_vocab())


class CrossTokenizer:
    """From the target's tokens to the draft's and back."""

    def __init__(self, target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase) -> None:
        self._target = target
        self._draft = draft
        self.needed = not alike(target, draft)

    def to_draft(self, ids: Sequence[int]) -> list[int]:
        """A whole text as the draft model reads it."""
        return list(self._draft(_text(self._target, ids)).input_ids)

    def to_target(self, text: Sequence[int], read: Sequence[int], new: Sequence[int]) -> list[int]:
        """The target tokens for ``new`` draft tokens after a text the draft model has ``read``.

        None where nothing new can be spelled: never tokens that would say something else.
        """
        window = read[-WINDOW:]
        said = _text(self._draft, window)
        after = _text(self._draft, [*window, *new]).rstrip(INCOMPLETE)  # a draft may split one
        if not after.startswith(said):
            return []
        end, added = list(text[-WINDOW:]), after[len(said) :]
        before = _text(self._target, end)
        alone, whole = self._spell(before), self._spell(before + added)
        # Spelled together, the first new token may join the last one of the text, which stays.
        joined = whole[: len(alone)] != alone
        tokens = self._spell(added) if joined else whole[len(alone) :]
        return tokens if _text(self._target, [*end, *tokens]) == before + added else []

    def _spell(self, text: str) -> list[int]:
        return list(self._target(text, add_special_tokens=False).input_ids)


def _text(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    text = tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert isinstance(text, str)
    return text
