"""A text that is still being changed, told to a streamer while it is written.

Beams change their minds: what leads now may be overtaken. A streamer with a method
``revise(kept, tokens)`` hears of every change: the first ``kept`` tokens stand, ``tokens`` follow.
Any other streamer hears a token once every beam has it, so that nothing is ever taken back. Knows
transformers' streamers. Refuses to know beams.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import torch
from transformers.generation.streamers import BaseStreamer


class LeadingText:
    """What one streamer has heard."""

    def __init__(self, streamer: BaseStreamer) -> None:
        self._streamer: Any = streamer  # transformers' streamers have no types
        self._heard: list[int] = []

    def hear(self, texts: Sequence[Sequence[int]]) -> None:
        """Tell what is new; ``texts`` are the running ones, the leading one first."""
        if hasattr(self._streamer, "revise"):
            self._revise(list(texts[0]) if texts else [])
        else:
            self._put(_common(texts))

    def end(self, text: list[int]) -> None:
        """Tell the rest of the text that won."""
        self.hear([text])
        self._streamer.end()

    def _revise(self, text: list[int]) -> None:
        kept = len(_common([self._heard, text]))
        if kept < max(len(text), len(self._heard)):
            self._streamer.revise(kept, text[kept:])
            self._heard = text

    def _put(self, text: list[int]) -> None:
        if new := text[len(self._heard) :]:
            self._streamer.put(torch.tensor(new))
            self._heard = text


def _common(texts: Sequence[Sequence[int]]) -> list[int]:
    """What all texts begin with."""
    columns = zip(*texts, strict=False)
    return [column[0] for column in takewhile(lambda column: len(set(column)) == 1, columns)]
