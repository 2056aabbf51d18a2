"""Translation between the tokens of a model and those of a draft model with another tokenizer.

Timor et al. 2025, "Accelerating LLM Inference with Lossless Speculative Decoding Algorithms for
Heterogeneous Vocabularies".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from transformers import PreTrainedTokenizerBase

from engine.trace.token_text import INCOMPLETE

WINDOW = 10  # tokens before the new ones that are tokenized again with them


@lru_cache(maxsize=8)  # comparing vocabularies takes tens of milliseconds
def same_vocabulary(one: PreTrainedTokenizerBase, other: PreTrainedTokenizerBase) -> bool:
    """Whether two tokenizers have the same tokens."""
    return one is other or bool(one.get_vocab() == other.get_vocab())


class CrossTokenizer:
    """Translates from the target's tokens to the draft's and back."""

    def __init__(self, target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase) -> None:
        self._target = target
        self._draft = draft
        self.needed = not same_vocabulary(target, draft)

    def to_draft(self, ids: Sequence[int]) -> list[int]:
        """A whole text in the draft model's tokens."""
        return list(self._draft(_text(self._target, ids)).input_ids)

    def to_target(self, text: Sequence[int], read: Sequence[int], new: Sequence[int]) -> list[int]:
        """The target tokens for ``new`` draft tokens after a text, which the draft model has
        ``read`` as its own tokens.

        Empty where there are no target tokens for exactly the new text.
        """
        window = read[-WINDOW:]
        old = _text(self._draft, window)
        whole = _text(self._draft, [*window, *new]).rstrip(INCOMPLETE)  # may end inside a character
        if not whole.startswith(old):
            return []
        end, added = list(text[-WINDOW:]), whole[len(old) :]
        before = _text(self._target, end)
        alone, together = self._tokenize(before), self._tokenize(before + added)
        # Tokenized together, the first new token may merge with the last old one, which must stay.
        merged = together[: len(alone)] != alone
        tokens = self._tokenize(added) if merged else together[len(alone) :]
        return tokens if _text(self._target, [*end, *tokens]) == before + added else []

    def _tokenize(self, text: str) -> list[int]:
        return list(self._target(text, add_special_tokens=False).input_ids)


def _text(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    text = tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert isinstance(text, str)
    return text
