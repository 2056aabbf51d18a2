"""Example comparisons: each fills the form, runs, and shows one effect."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from engine.errors import PlaygroundError
from engine.prompt import Chat
from engine.settings import Limits
from playground import Playground
from playground.ui.compare.cards import cards_of, choice
from playground.ui.shared.html import json_value

COLOURS = ("probability", "rank", "entropy", "surprisal", "green", "draft")
TABS = ("step", "tree", "strategy", "charts")


class Spot(NamedTuple):
    """Where an effect shows: a column's text, one of its tokens, a figure of every column or, by
    default, the open view."""

    column: int | None = None
    token: int | None = None
    figure: str = ""


@dataclass(frozen=True)
class Preset:
    """An example.

    ``cards`` are strategies with the values their controls show; ``shared`` are settings of all
    runs. ``colour``, ``tab`` and ``spot`` show the effect best.
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
    spot: Spot = Spot()

    @property
    def full_prompt(self) -> str | Chat:
        """The prompt as a lab takes it."""
        return [{"role": "user", "content": self.prompt}] if self.chat else self.prompt


def _green_list(bias: float) -> str:
    return json.dumps({"greenlist_ratio": 0.25, "bias": bias, "seeding_scheme": "lefthash"})


_SYNTHID = json.dumps({"ngram_len": 5, "keys": [654, 400, 836, 123, 340, 443, 597, 160, 57, 29]})

FIRST = Preset(
    "The most probable text repeats itself",
    "Greedy decoding and beam search maximise probability and soon repeat themselves; sampling "
    "rarely does. The background of each token shows its probability.",
    "I love my cat because",
    (
        ("greedy", {}),
        ("beam_search", {"num_beams": 5, "num_return_sequences": 3}),
        ("sample", {"temperature": 0.8, "top_p": 0.95}),
    ),
    spot=Spot(column=0),
)

PRESETS = (
    FIRST,
    Preset(
        "Temperature is not creativity",
        "One seed at four temperatures. A higher temperature only raises the probability of tokens "
        "that the model itself considers unlikely.",
        "Once upon a time, a clockmaker found",
        tuple(("sample", {"temperature": value, "top_k": 0}) for value in (0.2, 0.7, 1.0, 1.6)),
        max_new_tokens=32,
        colour="surprisal",
        tab="charts",
        spot=Spot(column=3),
    ),
    Preset(
        "Min-p at a high temperature",
        "At temperature 1.5, top-p keeps thousands of tokens where the model is uncertain. Min-p "
        "keeps only tokens with a tenth of the best one's probability, and the text is coherent.",
        "My favourite breakfast is",
        (
            ("sample", {"temperature": 1.5, "top_k": 0}),
            ("sample", {"temperature": 1.5, "top_k": 0, "top_p": 0.95}),
            ("sample", {"temperature": 1.5, "top_k": 0, "min_p": 0.1}),
        ),
        max_new_tokens=32,
        seed=1,
        colour="rank",
        spot=Spot(column=2),
    ),
    Preset(
        "Same seed, one setting changed",
        "Two runs with the same seed sample the same tokens until the lower top-p cuts a token "
        "that the other run samples. From there on the texts differ.",
        "The old lighthouse keeper",
        (("sample", {"top_k": 0, "top_p": 0.9}), ("sample", {"top_k": 0, "top_p": 0.8})),
        max_new_tokens=36,
        seed=3,
        tab="charts",
        spot=Spot(column=1, token=22),
    ),
    Preset(
        "Certain and uncertain steps",
        "Where entropy is low, sampling gives the same tokens as greedy decoding. Where it is "
        "high, they differ: the days of the week are certain, what follows is not.",
        "The days of the week are Monday, Tuesday, Wednesday,",
        (("greedy", {}), ("sample", {"top_k": 0})),
        max_new_tokens=28,
        seed=1,
        colour="entropy",
        spot=Spot(column=0),
    ),
    Preset(
        "Facts survive sampling",
        "Four sampled answers to one question. All of them name the same city, because the model "
        "is certain of it; the rest of each answer differs.",
        "What is the capital of France? Answer in one sentence.",
        (("greedy", {}), ("sample", {"num_return_sequences": 4})),
        chat=True,
        max_new_tokens=24,
        spot=Spot(column=1),
    ),
    Preset(
        "Beams look ahead",
        "Greedy decoding cannot revise a token. Beam search keeps several partial texts and finds "
        "a word that becomes probable only after its first tokens.",
        "Why is the sky blue? Answer in one sentence.",
        (("greedy", {}), ("beam_search", {"num_beams": 4, "num_return_sequences": 4})),
        chat=True,
        max_new_tokens=40,
        tab="tree",
    ),
    Preset(
        "Diverse beams",
        "Beam search returns four versions of one text. Diverse beam search penalises tokens that "
        "other groups of beams have chosen, and returns four different, less probable texts.",
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
        "Constrained beam search keeps beams that make progress towards a required word, and "
        "returns a less probable text that contains it.",
        "On our holiday we went to the beach and saw",
        (
            ("beam_search", {"num_beams": 5}),
            ("constrained_beam_search", {"num_beams": 5, "force_words": "dolphins"}),
        ),
        max_new_tokens=16,
        tab="tree",
    ),
    Preset(
        "Contrastive search avoids loops",
        "Contrastive search penalises candidates that are similar to the text so far. On this "
        "prompt greedy decoding repeats itself; contrastive search does not.",
        "In the middle of the night, the sailor",
        (("greedy", {}), ("contrastive_search", {})),
        max_new_tokens=56,
        tab="strategy",
        spot=Spot(column=1),
    ),
    Preset(
        "A penalty cannot count",
        "A repetition penalty breaks loops, also where repeating is correct: the higher it is, the "
        "less often the model can write the right number.",
        "Counting to five, again and again: 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2,",
        (
            ("greedy", {}),
            ("greedy", {"repetition_penalty": 1.2}),
            ("greedy", {"repetition_penalty": 1.8}),
        ),
        max_new_tokens=24,
        colour="rank",
        spot=Spot(column=2),
    ),
    Preset(
        "Layers that disagree",
        "DoLa prefers tokens whose probability rises between an earlier and the last layer. It "
        "departs from the greedy text towards facts, though a model this small gets them wrong.",
        "The chemical symbol for gold is",
        (("greedy", {}), ("dola", {"dola_layers": "high"})),
        max_new_tokens=28,
        colour="rank",
        tab="strategy",
    ),
    Preset(
        "Drafts save forward passes",
        "The same text three times. Drafted tokens, copied from the prompt or written by a tiny "
        "story model, are verified together in one forward pass. Compare the forward passes.",
        "Once upon a time, there was a little girl named Lily. Lily had a red ball. Lily loved "
        "her red ball very much. One day, Lily lost her red ball. She looked for her red ball",
        (
            ("greedy", {}),
            ("prompt_lookup", {}),
            ("universal_speculative", {"num_assistant_tokens": 8}),
        ),
        colour="draft",
        spot=Spot(figure="forward passes"),
    ),
    Preset(
        "A watermark you cannot see",
        "Two texts from one seed. The first one favours green tokens, which a detector with the "
        "key can measure; in the second a quarter of the tokens is green by chance.",
        "In a small village by the sea,",
        (("sample", {"watermarking_config": _green_list(2.5)}), ("sample", {})),
        colour="green",
        spot=Spot(column=0),
    ),
    Preset(
        "SynthID: tournament sampling",
        "SynthID samples each token by a tournament between candidates. On average no token gets "
        "more probable, but the winners can be detected. The second text has the same seed.",
        "The history of the lighthouse begins",
        (("sample", {"top_k": 0, "watermarking_config": _SYNTHID}), ("sample", {"top_k": 0})),
        max_new_tokens=96,
        spot=Spot(column=0),
    ),
)


def preset_at(index: Any) -> Preset:
    """The example with this number, which a browser sent, or a `PlaygroundError`."""
    if type(index) is not int or not 0 <= index < len(PRESETS):
        raise PlaygroundError(f"there is no example {index!r}")
    return PRESETS[index]


def listing(lab: Playground | None, limits: Limits) -> str:
    """The examples as JSON, each with the reason why it does not work with a model, if any."""
    return json_value(
        [
            {
                "title": preset.title,
                "point": preset.point,
                "colour": preset.colour,
                "tab": preset.tab,
                "spot": preset.spot._asdict(),
                "reason": _reason(preset, lab, limits) if lab else "",
            }
            for preset in PRESETS
        ]
    )


def _reason(preset: Preset, lab: Playground, limits: Limits) -> str:
    """Why a model cannot run an example; empty if it can."""
    try:
        choices = [choice(card, lab) for card in cards_of(preset.cards, limits)]
        lab.parse(preset.full_prompt, choices, **preset.shared)
    except PlaygroundError as error:
        return str(error)
    return ""
