"""Decodes tokens to text, one by one: spaces and characters split over several tokens survive."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from transformers import PreTrainedTokenizerBase

from engine.trace.types import Token

INCOMPLETE = "\N{REPLACEMENT CHARACTER}"  # what decoding gives for part of a character
LONGEST = 4  # bytes of the longest UTF-8 character, hence the most tokens it is split over


class TokenDecoder:
    """Decodes the tokens of one tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        # Some tokenizers drop a leading space, so texts are decoded after another token.
        self._anchor: list[int] = tokenizer("a", add_special_tokens=False).input_ids[-1:]
        self._anchor_text = self._decode(self._anchor)
        self.token = lru_cache(maxsize=None)(self._token)
        self.add = lru_cache(maxsize=100_000)(self._add)

    def text(self, ids: Sequence[int], *, at_start: bool = False) -> str:
        """The text of a sequence, special tokens included; ``at_start``: nothing precedes it."""
        whole = self._decode([*self._anchor, *ids])
        if at_start or not whole.startswith(self._anchor_text):
            return self._decode(ids)
        return whole[len(self._anchor_text) :]

    def ids(self, text: str) -> list[int]:
        """The tokens of a text that follows another one."""
        ids: list[int] = self._tokenizer(text, add_special_tokens=False).input_ids
        if self.text(ids) == text:
            return ids
        # Some tokenizers put a space before every text, but none after a newline.
        after_newline: list[int] = self._tokenizer("\n" + text, add_special_tokens=False).input_ids
        tails = (after_newline[start:] for start in range(1, len(after_newline)))
        return next((tail for tail in tails if self.text(tail) == text), ids)

    def _add(
        self, pending: tuple[int, ...], token: int, *, at_start: bool = False
    ) -> tuple[str, tuple[int, ...]]:
        """The text that a token adds, and the tokens of a character that is still incomplete."""
        ids = (*pending, token)
        text = self.text(ids, at_start=at_start)
        if text.endswith(INCOMPLETE) and len(ids) < LONGEST:
            return "", ids
        return text, ()

    def _token(self, id: int) -> Token:
        """A single token with its text or, if it has none of its own, its bytes."""
        text = self.text([id])
        if not text or INCOMPLETE in text:
            piece = str(self._tokenizer.convert_ids_to_tokens(id))
            text = "".join(f"<0x{byte:02X}>" for byte in _bytes(piece)) or piece
        return Token(id, text)

    def _decode(self, ids: Sequence[int]) -> str:
        text = self._tokenizer.decode(
            list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        assert isinstance(text, str)
        return text


class IdDecoder(TokenDecoder):
    """Writes tokens as their ids, where there is no tokenizer."""

    def __init__(self) -> None:
        self.token = lru_cache(maxsize=None)(self._token)
        self.add = lru_cache(maxsize=None)(self._add)

    def text(self, ids: Sequence[int], *, at_start: bool = False) -> str:
        """The ids, separated by spaces."""
        return "".join(f" {id}" for id in ids)

    def _token(self, id: int) -> Token:
        return Token(id, f" {id}")


def _bytes(piece: str) -> bytes:
    """The bytes of a vocabulary entry, in either of the two notations that tokenizers have."""
    if match := re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", piece):
        return bytes.fromhex(match[1])
    table = _byte_alphabet()
    return bytes(table[char] for char in piece) if all(char in table for char in piece) else b""


@lru_cache(maxsize=1)
def _byte_alphabet() -> dict[str, int]:
    """Byte-level vocabularies write printable bytes as themselves and the others from 256 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    shifted = {chr(256 + index): byte for index, byte in enumerate(others)}
    return {chr(byte): byte for byte in printable} | shifted
