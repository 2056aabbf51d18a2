"""Comparisons worth a first look: each fills the form, makes one point, and says where to see it.

Knows prompts and settings. Refuses to know how they are run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

COLOURS = ("probability", "rank", "entropy", "surprisal", "green", "draft")
TABS = ("step", "tree", "why", "across", "watermark")


@dataclass(frozen=True)
class Preset:
    """One comparison.

    ``cards`` are strategies with the values their controls show, shared settings for that card
    alone among them; ``shared`` are values for all. ``colour`` and ``tab`` are where the point is
    best seen.
    """

    title: str
    point: str
    prompt: str
    cards: tuple[tuple[str, Mapping[str, Any]], ...]
    chat: bool = False
    max_new_tokens: int = 48
    seed: int = 0
    shared: Mapping[str, Any] = field(default_factory=dict)
    colour: str = "probability"
    tab: str = "step"


def _marked(bias: float) -> str:
    return json.dumps({"greenlist_ratio": 0.25, "bias": bias, "seeding_scheme": "lefthash"})


_SYNTHID = json.dumps({"ngram_len": 5, "keys": [654, 400, 836, 123, 340, 443, 597, 160, 57, 29]})

FIRST = Preset(
    "The likeliest text repeats itself",
    "Always taking the most probable word, or looking for the most probable text, soon goes round "
    "in circles; a text that is drawn hardly does. Watch the colours turn yellow.",
    "I love my cat because",
    (
        ("greedy", {}),
        ("beam_search", {"num_beams": 5, "num_return_sequences": 3}),
        ("sample", {"temperature": 0.8, "top_p": 0.95}),
    ),
    tab="across",
)

PRESETS = (
    FIRST,
    Preset(
        "Temperature is not creativity",
        "One seed at four temperatures: heat brings no new ideas, it only makes words that the "
        "model itself finds absurd more likely to be drawn.",
        "Once upon a time, a clockmaker found",
        tuple(("sample", {"temperature": heat, "top_k": 0}) for heat in (0.2, 0.7, 1.0, 1.6)),
        max_new_tokens=32,
        colour="surprisal",
        tab="across",
    ),
    Preset(
        "Hot, but min-p keeps its head",
        "At temperature 1.5 top-p still lets thousands of words through where the model is unsure; "
        "min-p keeps only those not much less probable than the best one, and the text holds.",
        "My favourite breakfast is",
        (
            ("sample", {"temperature": 1.5, "top_k": 0}),
            ("sample", {"temperature": 1.5, "top_k": 0, "top_p": 0.95}),
            ("sample", {"temperature": 1.5, "top_k": 0, "min_p": 0.1}),
        ),
        max_new_tokens=32,
        seed=1,
        colour="rank",
    ),
    Preset(
        "Same seed, one knob",
        "Two runs with equal seeds draw the same words until the one setting that differs cuts a "
        "word that the other still draws; from there on they are two texts.",
        "The old lighthouse keeper",
        (("sample", {"top_k": 0, "top_p": 0.9}), ("sample", {"top_k": 0, "top_p": 0.8})),
        max_new_tokens=36,
        seed=3,
        tab="across",
    ),
    Preset(
        "Sure and unsure",
        "Where the model is sure, drawing gives what greedy decoding gives; the two part where it "
        "is not. Dark is unsure: the days of the week are known, what follows them is not.",
        "The days of the week are Monday, Tuesday, Wednesday,",
        (("greedy", {}), ("sample", {"top_k": 0})),
        max_new_tokens=28,
        seed=1,
        colour="entropy",
    ),
    Preset(
        "A fact survives the draw",
        "Four answers drawn to one question: every one names the city that the model is sure of, "
        "and each says what it likes about it.",
        "What is the capital of France? Answer in one sentence.",
        (("greedy", {}), ("sample", {"num_return_sequences": 4})),
        chat=True,
        max_new_tokens=24,
    ),
    Preset(
        "Beams look ahead",
        "Greedy decoding commits to a name one piece at a time and cannot take it back; beams "
        "revise their text until the end, and find the word that was meant.",
        "Why is the sky blue? Answer in one sentence.",
        (("greedy", {}), ("beam_search", {"num_beams": 4, "num_return_sequences": 4})),
        chat=True,
        max_new_tokens=40,
        tab="tree",
    ),
    Preset(
        "Beams unlike each other",
        "Beam search returns four versions of one text; groups of beams that avoid each other's "
        "words return four texts, at the price of less probable ones.",
        "The door opened and",
        (
            ("beam_search", {"num_beams": 4, "num_return_sequences": 4}),
            (
                "diverse_beam_search",
                {"num_beams": 4, "num_beam_groups": 4, "num_return_sequences": 4},
            ),
        ),
        max_new_tokens=20,
        tab="tree",
    ),
    Preset(
        "Force a word into the text",
        "Beam search can be told that a word must appear: it keeps beams alive that are on the way "
        "there, and leads up to it with a less probable text.",
        "On our holiday we went to the beach and saw",
        (
            ("beam_search", {"num_beams": 5}),
            ("constrained_beam_search", {"num_beams": 5, "force_words": "dolphins"}),
        ),
        max_new_tokens=16,
        tab="tree",
    ),
    Preset(
        "Out of the circle",
        "Contrastive search weighs a few probable words and takes off for likeness to what was "
        "already said: greedy decoding comes round again here, contrastive search does not.",
        "In the middle of the night, the sailor",
        (("greedy", {}), ("contrastive_search", {})),
        max_new_tokens=56,
        tab="why",
    ),
    Preset(
        "A penalty cannot count",
        "A penalty on words that occurred breaks a loop, but cannot tell one that is right: the "
        "higher it is, the less the model may say what must come next.",
        "Counting to five, again and again: 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2,",
        (
            ("greedy", {}),
            ("greedy", {"repetition_penalty": 1.2}),
            ("greedy", {"repetition_penalty": 1.8}),
        ),
        max_new_tokens=24,
        colour="rank",
    ),
    Preset(
        "Layers that disagree",
        "DoLa takes words that the last layer has come to believe and an earlier one had not: it "
        "leaves the likeliest path for facts, though a model this small has them wrong.",
        "The chemical symbol for gold is",
        (("greedy", {}), ("dola", {"dola_layers": "high"})),
        max_new_tokens=28,
        colour="rank",
        tab="why",
    ),
    Preset(
        "Drafts that pay",
        "Three times the same text, but several drafted words are judged in one pass of the model: "
        "copied from the text so far, or written by a tiny story model. Compare forward passes.",
        "Once upon a time, there was a little girl named Lily. Lily had a red ball. Lily loved "
        "her red ball very much. One day, Lily lost her red ball. She looked for her red ball",
        (
            ("greedy", {}),
            ("prompt_lookup", {}),
            ("universal_speculative", {"num_assistant_tokens": 8}),
        ),
        colour="draft",
    ),
    Preset(
        "A watermark you cannot see",
        "Both texts read alike, from one seed. The first leans towards green words, and whoever "
        "has the key can tell; in the second a quarter of the words is green by chance.",
        "In a small village by the sea,",
        (("sample", {"watermarking_config": _marked(2.5)}), ("sample", {})),
        colour="green",
        tab="watermark",
    ),
    Preset(
        "A tournament leaves a trace",
        "SynthID lets words compete before one is drawn. No word becomes likelier on average, and "
        "yet the winners of the first text give it away; the second is from the same seed.",
        "The history of the lighthouse begins",
        (("sample", {"top_k": 0, "watermarking_config": _SYNTHID}), ("sample", {"top_k": 0})),
        max_new_tokens=96,
        tab="watermark",
    ),
)
