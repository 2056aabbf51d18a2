"""Who can race: plain decoding, and every way of drafting that this lab's model allows.

Knows strategies by their ids, and settings that show each at its best on a small model. Refuses to
run anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.errors import PlaygroundError
from engine.models import trained
from playground.lab import Playground

PLAIN = "Plain decoding"


@dataclass(frozen=True)
class Drafter:
    """One who may race: a name for people, a strategy with its settings, and what drafts there;
    ``why_not`` is a sentence where this model or this server does not allow it."""

    name: str
    strategy: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    unavailable_reason: str | None = None
    about: str = ""

    @property
    def plain(self) -> bool:
        """Whether it drafts nothing: what the others are held against."""
        return self.name == PLAIN

    @property
    def choice(self) -> tuple[str, Mapping[str, Any]]:
        """What a lab is asked for."""
        return self.strategy, self.settings


# A way of drafting: id, name, settings, who drafts.
_Drafter = tuple[str, str, dict[str, Any], str]
_LOOKUP: _Drafter = (
    "prompt_lookup",
    "Prompt lookup",
    {"prompt_lookup_num_tokens": 8},
    "What followed the same words before is copied: drafting costs nothing.",
)
_OTHERS: tuple[_Drafter, ...] = (
    (
        "universal_speculative",
        "Other vocabulary",
        {"assistant_model": "stories15m", "num_assistant_tokens": 8},
        "stories15m drafts, which writes children's stories in tokens of its own.",
    ),
    ("medusa", "Medusa heads", {}, "Heads on the model's last layer draft a tree in one go."),
)
# Those that only a model has for which something was trained.
_NEED_TRAINING = ("medusa",)


def all_drafters(
    lab: Playground, *, do_sample: bool = False, shaping: Mapping[str, Any] | None = None
) -> tuple[Drafter, ...]:
    """Everyone there is, plain decoding first. ``shaping`` are settings such as ``temperature``
    and ``top_k`` that all of them draw with; what is taken, not drawn, needs none."""
    shared = dict(shaping or {}) if do_sample else {}
    plain = Drafter(
        PLAIN,
        "sample" if do_sample else "greedy",
        shared,
        about="One pass of the model for each token.",
    )
    drawing = {"do_sample": True, **shared} if do_sample else {}
    return (
        plain,
        *(
            Drafter(
                name,
                id,
                {**settings, **drawing},
                _why_not(lab, id),
                about,
            )
            for id, name, settings, about in (
                _draft_model(lab),
                _LOOKUP,
                _first_layers(lab),
                *_OTHERS,
            )
        ),
    )


def _draft_model(lab: Playground) -> _Drafter:
    """The draft that was trained for the model, used as it is usual; else the model itself."""
    usual = lab.defaults("speculative").get("assistant_model")
    if usual:
        return "speculative", "Draft model", {}, f"{usual} drafts, trained for this model."
    about = "No draft was trained for this model: it drafts for itself, which saves nothing."
    return "speculative", "Draft model", {"num_assistant_tokens": 5}, about


def _first_layers(lab: Playground) -> _Drafter:
    """The model's first layers with an exit that was trained for them, or as they are."""
    usual = lab.defaults("early_exit").get("assistant_early_exit")
    if usual:
        return "early_exit", "Early exit", {}, early_exit_description(lab, usual)
    about = "The first half of the model's layers drafts, though nobody trained it to."
    return "early_exit", "Early exit", {"num_assistant_tokens": 4}, about


def early_exit_description(lab: Playground, layers: int) -> str:
    """Who drafts where the model is left behind so many layers."""
    if layers in trained.exit_layers(lab.model):
        return f"The model's first {layers} layers draft, and an exit that was trained for them."
    return f"The model's first {layers} layers draft, though nobody trained them to."


def available_drafters(lab: Playground, **how: Any) -> tuple[Drafter, ...]:
    """Those that nothing keeps from racing."""
    return tuple(one for one in all_drafters(lab, **how) if one.unavailable_reason is None)


def plain_baseline(lab: Playground, drafter: Drafter, *, do_sample: bool | None = None) -> Drafter:
    """Plain decoding with what of a drafter's settings it takes as well, drawing as that does."""
    drawn = drafter.settings.get("do_sample", False) if do_sample is None else do_sample
    id = "sample" if drawn else "greedy"
    known = lab.offered()[id].own_settings
    return Drafter(PLAIN, id, {n: value for n, value in drafter.settings.items() if n in known})


def _why_not(lab: Playground, id: str) -> str | None:
    found = lab.offered().get(id)
    if found is None:
        return "This strategy is not offered here."
    if found.decoder_only and lab.model.is_encoder_decoder:
        return f"It needs a decoder-only model, and {lab.model.name} is none."
    if id in _NEED_TRAINING:
        try:
            # Refused before anything runs, where the model lacks what the strategy needs.
            lab.stream("a", [id], max_new_tokens=1)
        except PlaygroundError as error:
            return str(error)
    return None
