"""Comparisons worth a first look: each one fills the form and makes one point.

Knows prompts and settings. Refuses to know how they are run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Example:
    """One comparison. ``cards`` are strategies with the values their controls show."""

    title: str
    point: str
    prompt: str
    cards: tuple[tuple[str, Mapping[str, Any]], ...]
    chat: bool = False
    max_new_tokens: int = 48
    seed: int = 0


FIRST = Example(
    "The likeliest text repeats itself",
    "Greedy and beam search find very probable texts: watch the colours turn yellow as they begin "
    "to go round in circles. Sampling leaves the circle.",
    "I love my dog because",
    (
        ("greedy", {}),
        ("beam_search", {"num_beams": 5, "num_return_sequences": 3}),
        ("sample", {"temperature": 0.8, "top_p": 0.95}),
    ),
)

EXAMPLES = (
    FIRST,
    Example(
        "Temperature is not creativity",
        "The same seed at four temperatures: low ones follow the likeliest path, high ones pick "
        "words the model itself finds absurd.",
        "Once upon a time, a clockmaker found",
        tuple(("sample", {"temperature": heat, "top_k": 0}) for heat in (0.2, 0.7, 1.0, 1.6)),
        max_new_tokens=40,
    ),
    Example(
        "Hot, but min-p keeps its head",
        "At temperature 1.5 top-p still lets thousands of tokens through where the model is "
        "unsure; min-p measures them against the best one. Compare the counts on any token.",
        "My favourite breakfast is",
        (
            ("sample", {"temperature": 1.5, "top_k": 0}),
            ("sample", {"temperature": 1.5, "top_k": 0, "top_p": 0.95}),
            ("sample", {"temperature": 1.5, "top_k": 0, "min_p": 0.1}),
        ),
        max_new_tokens=40,
        seed=1,
    ),
    Example(
        "Beams look ahead",
        "Greedy commits to a name one piece at a time and cannot take it back; the beams revise "
        "their text until the end. The tree below shows what they gave up.",
        "Why is the sky blue? Answer in one sentence.",
        (("greedy", {}), ("beam_search", {"num_beams": 4, "num_return_sequences": 4})),
        chat=True,
        max_new_tokens=56,
    ),
    Example(
        "Out of the circle",
        "Contrastive search weighs a few probable tokens and takes off for likeness to what was "
        "already said. Greedy decoding repeats whole sentences here; contrastive search repeats "
        "none, at the price of reading every candidate.",
        "In the middle of the night, the sailor",
        (("greedy", {}), ("contrastive_search", {})),
        max_new_tokens=72,
    ),
    Example(
        "Write ahead, then check",
        "Three times the same text. Greedy decoding asks the model once for every token; the "
        "others have a draft of several tokens judged in one pass, copied from the text so far or "
        "written by a tiny story model. Compare the forward passes, and how many drafted tokens "
        "were accepted; it saves time where a pass takes long, with a large model.",
        "Once upon a time, there was a little girl named Lily. Lily had a red ball. Lily loved "
        "her red ball very much. One day, Lily lost her red ball. She looked for her red ball",
        (
            ("greedy", {}),
            ("prompt_lookup", {}),
            ("universal_speculative", {"num_assistant_tokens": 8}),
        ),
        max_new_tokens=64,
    ),
    Example(
        "Beams unlike each other",
        "Beam search returns four versions of one text. Groups of beams that avoid each other's "
        "words return four texts, less probable ones: compare the scores, and press them to read.",
        "The door opened and",
        (
            ("beam_search", {"num_beams": 4, "num_return_sequences": 4}),
            (
                "diverse_beam_search",
                {"num_beams": 4, "num_beam_groups": 4, "num_return_sequences": 4},
            ),
        ),
        max_new_tokens=24,
    ),
)
