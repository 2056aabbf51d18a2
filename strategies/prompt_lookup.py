"""Prompt lookup: speculative decoding whose draft is copied from the text itself.

Saxena 2023, "Prompt Lookup Decoding"; Yang et al. 2023, "Inference with Reference: Lossless
Acceleration of Large Language Models".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engine.run import Node, Run, Subroutine
from engine.settings import setting
from engine.strategy import Decoding, strategy
from strategies._drafting import DO_SAMPLE, Draft
from strategies.sample import SamplingParams
from strategies.speculative import speculate


@dataclass(frozen=True)
class Params(SamplingParams):
    """The length of copies, and of the n-grams that find them."""

    prompt_lookup_num_tokens: int = setting(
        10, "The number of tokens to copy in a round.", low=1, limit="draft_tokens"
    )
    max_matching_ngram_size: int = setting(
        2,
        "How many of the last tokens to look for earlier in the text; if they do not occur, one "
        "less, and so on.",
        low=1,
        high=16,
    )
    do_sample: bool = setting(False, DO_SAMPLE)


@strategy("prompt_lookup", order=10, params=Params, drafts=True, num_beams=1)
def prompt_lookup(run: Run, params: Params) -> Decoding:
    """Copies what followed the same words earlier and keeps the tokens that the model accepts.

    Needs no draft model. Fast where a text repeats its prompt: summaries, edits, code.
    """

    def draft(generated: list[int], room: int, number: int, node: Node) -> Subroutine[Draft]:
        text = [*run.root.ids.tolist(), *generated]
        match = find_match(text, params.max_matching_ngram_size)
        if match is None or room <= 0:
            return Draft()
        count = min(params.prompt_lookup_num_tokens, room)
        copied = text[match.start : match.start + count]
        ends = [index for index, token in enumerate(copied) if token in run.end_tokens]
        copied = copied[: ends[0]] if ends else copied
        notes = [
            {"copied_from": match.start + index, "matched": match.size}
            for index in range(len(copied))
        ]
        return Draft(copied, notes=notes)
        yield []  # a subroutine, though this one evaluates nothing

    return speculate(run, draft, do_sample=params.do_sample)


class Match(NamedTuple):
    """An earlier occurrence of the last tokens: the position after it, and their number."""

    start: int
    size: int


def find_match(text: Sequence[int], max_size: int) -> Match | None:
    """The first earlier occurrence of the longest possible n-gram at the end of a text."""
    for size in range(min(max_size, len(text) - 1), 0, -1):
        end = list(text[-size:])
        for at in range(len(text) - size):
            if list(text[at : at + size]) == end:
                return Match(at + size, size)
    return None
