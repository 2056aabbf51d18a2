"""Texts of one tokenizer in the tokens of another, for a draft model with a vocabulary of its own.

Timor et al. 2025, "Accelerating LLM Inference with Lossless Speculative Decoding Algorithms for
Heterogeneous Vocabularies". Knows two tokenizers. Refuses to know models.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from transformers import PreTrainedTokenizerBase

WINDOW = 10  # draft tokens before the new ones that are spelled along, to find where those begin


class Respelling:
    """From the target's tokens to the draft's and back."""

    def __init__(self, target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase) -> None:
        self._target = target
        self._draft = draft
        # Without a vocabulary there is nothing to spell: such models share their tokens.
        self.needed = target is not draft and target.get_vocab() != draft.get_vocab()

    def to_draft(self, ids: Sequence[int]) -> list[int]:
        """A whole text as the draft model reads it."""
        return list(self._draft(_text(self._target, ids)).input_ids)

    def to_target(self, text: Sequence[int], read: Sequence[int], new: Sequence[int]) -> list[int]:
        """The target tokens for ``new`` draft tokens after a text the draft model has ``read``.

        Spelled with what stands before it, a draft may share its first token with the end of the
        text. What both have in common is found as the longest run of equal tokens.
        """
        window = _text(self._draft, [*read[-WINDOW:], *new])
        respelled = list(self._target(window, add_special_tokens=False).input_ids)
        end = list(text[-len(respelled) :])
        common = SequenceMatcher(None, end, respelled, autojunk=False).find_longest_match()
        if common.size == 0:
            return []
        behind = len(end) - (
            common.a + common.size
        )  # tokens of the text that are spelled otherwise
        return respelled[common.b + common.size + behind :]


def _text(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    text = tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert isinstance(text, str)
    return text
