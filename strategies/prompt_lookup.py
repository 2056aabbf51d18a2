"""Prompt lookup: speculative decoding whose draft is copied from the text itself.

Saxena 2023, "Prompt Lookup Decoding"; Yang et al. 2023, "Inference with Reference: Lossless
Acceleration of Large Language Models".
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engine.run import Node, Run
from engine.settings import setting
from engine.strategy import Ask, Decoding, strategy
from strategies._speculation import Proposal, speculate
from strategies.sample import Shaping


@dataclass(frozen=True)
class Params(Shaping):
    """How much is looked up, and by how much of the text."""

    prompt_lookup_num_tokens: int = setting(
        10, "How many tokens to copy in a round.", low=1, limit="draft_tokens"
    )
    max_matching_ngram_size: int = setting(
        2,
        "How many of the last tokens to look for earlier in the text; where they do not occur, "
        "one less.",
        low=1,
        high=16,
    )
    do_sample: bool = setting(
        False,
        "Draw tokens, as probable as the model thinks they are, instead of the most probable.",
    )


@strategy("prompt_lookup", order=10, params=Params, drafts=True, num_beams=1)
def prompt_lookup(run: Run, params: Params) -> Decoding:
    """Copies what came after the same words before, and keeps what the model agrees with.

    Needs no draft model. Pays where texts repeat their prompt: summaries, edits, code.
    """

    def draft(
        written: list[int], room: int, number: int, last: Node
    ) -> Generator[Sequence[Ask], list[Node], Proposal]:
        text = [*run.root.ids.tolist(), *written]
        found = look_up(text, params.max_matching_ngram_size)
        if found is None or room <= 0:
            return Proposal()
        count = min(params.prompt_lookup_num_tokens, room)
        copied = text[found.start : found.start + count]
        ends = [place for place, token in enumerate(copied) if token in run.end_tokens]
        copied = copied[: ends[0]] if ends else copied
        notes = [
            {"copied_from": found.start + place, "matched": found.size}
            for place in range(len(copied))
        ]
        return Proposal(copied, notes=notes)
        yield []  # a drafter is a generator, though this one asks nobody

    return speculate(run, draft, do_sample=params.do_sample)


class Match(NamedTuple):
    """Where the text went on after its last tokens had occurred before, and how many they were."""

    start: int
    size: int


def look_up(text: Sequence[int], longest: int) -> Match | None:
    """The first place where the longest possible end of the text occurs earlier in it."""
    for size in range(min(longest, len(text) - 1), 0, -1):
        end = list(text[-size:])
        for at in range(len(text) - size):
            if list(text[at : at + size]) == end:
                return Match(at + size, size)
    return None
