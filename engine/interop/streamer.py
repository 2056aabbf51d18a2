"""Streams the leading text of a search that may still revise it.

The leading beam may be overtaken by another. A streamer with a method ``revise(kept, tokens)`` gets
every change: the first ``kept`` tokens stay, ``tokens`` follow. Any other streamer gets a token
once all beams share it, so that nothing is ever taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import torch
from transformers.generation.streamers import BaseStreamer


class LeadingText:
    """Sends the leading text to one streamer."""

    def __init__(self, streamer: BaseStreamer) -> None:
        self._streamer: Any = streamer  # transformers' streamers have no types
        self._sent: list[int] = []

    def update(self, texts: Sequence[Sequence[int]]) -> None:
        """Send what is new; ``texts`` are the running beams, the leading one first."""
        if hasattr(self._streamer, "revise"):
            self._revise(list(texts[0]) if texts else [])
        else:
            self._put(_common(texts))

    def end(self, text: list[int]) -> None:
        """Send the rest of the final text."""
        self.update([text])
        self._streamer.end()

    def _revise(self, text: list[int]) -> None:
        kept = len(_common([self._sent, text]))
        if kept < max(len(text), len(self._sent)):
            self._streamer.revise(kept, text[kept:])
            self._sent = text

    def _put(self, text: list[int]) -> None:
        if new := text[len(self._sent) :]:
            self._streamer.put(torch.tensor(new))
            self._sent = text


def _common(texts: Sequence[Sequence[int]]) -> list[int]:
    """The common prefix of all texts."""
    columns = zip(*texts, strict=False)
    return [column[0] for column in takewhile(lambda column: len(set(column)) == 1, columns)]
