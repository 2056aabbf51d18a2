"""The drafters of a race: plain decoding as the baseline, and each way of drafting with settings
that suit a small model."""

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
    """A way of drafting, or plain decoding: a strategy with settings and a name to show.
    ``unavailable_reason`` says why this model or server cannot run it."""

    name: str
    strategy: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    unavailable_reason: str | None = None
    about: str = ""

    @property
    def plain(self) -> bool:
        """Whether this is plain decoding, the baseline."""
        return self.name == PLAIN

    @property
    def choice(self) -> tuple[str, Mapping[str, Any]]:
        """The strategy with its settings, as `Playground.compare` takes it."""
        return self.strategy, self.settings


# Strategy id, name, settings, description.
_Row = tuple[str, str, dict[str, Any], str]
_LOOKUP: _Row = (
    "prompt_lookup",
    "Prompt lookup",
    {"prompt_lookup_num_tokens": 8},
    "Copies what followed the same tokens earlier in the text. Drafting is free.",
)
_OTHERS: tuple[_Row, ...] = (
    (
        "universal_speculative",
        "Other vocabulary",
        {"assistant_model": "stories15m", "num_assistant_tokens": 8},
        "stories15m drafts, a model of children's stories with its own tokenizer.",
    ),
    ("medusa", "Medusa heads", {}, "Heads on the model's last layer draft a tree in one pass."),
)
# Strategies that need weights trained for the model.
_NEED_WEIGHTS = ("medusa",)


def all_drafters(
    lab: Playground, *, do_sample: bool = False, shaping: Mapping[str, Any] | None = None
) -> tuple[Drafter, ...]:
    """All drafters, plain decoding first. ``shaping`` are sampling settings of all of them, such
    as ``temperature`` and ``top_k``; greedy decoding ignores them."""
    shared = dict(shaping or {}) if do_sample else {}
    plain = Drafter(
        PLAIN,
        "sample" if do_sample else "greedy",
        shared,
        about="One forward pass per token.",
    )
    sampling = {"do_sample": True, **shared} if do_sample else {}
    return (
        plain,
        *(
            Drafter(
                name,
                id,
                {**settings, **sampling},
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


def _draft_model(lab: Playground) -> _Row:
    """The draft model trained for the model, or the model itself."""
    default = lab.defaults("speculative").get("assistant_model")
    if default:
        return "speculative", "Draft model", {}, f"{default} drafts, trained for this model."
    about = "No draft model was trained for this model: it drafts for itself, without a gain."
    return "speculative", "Draft model", {"num_assistant_tokens": 5}, about


def _first_layers(lab: Playground) -> _Row:
    """The model's first layers, with a trained exit if there is one."""
    default = lab.defaults("early_exit").get("assistant_early_exit")
    if default:
        return "early_exit", "Early exit", {}, early_exit_description(lab, default)
    about = "The first half of the model's layers drafts, without a trained exit."
    return "early_exit", "Early exit", {"num_assistant_tokens": 4}, about


def early_exit_description(lab: Playground, layers: int) -> str:
    """Describe drafting with the model's first layers."""
    if layers in trained.exit_layers(lab.model):
        return f"The model's first {layers} layers draft, with an exit trained for them."
    return f"The model's first {layers} layers draft, without a trained exit."


def available_drafters(lab: Playground, **how: Any) -> tuple[Drafter, ...]:
    """The drafters that can run on this model."""
    return tuple(drafter for drafter in all_drafters(lab, **how) if not drafter.unavailable_reason)


def plain_baseline(lab: Playground, drafter: Drafter, *, do_sample: bool | None = None) -> Drafter:
    """Plain decoding with those of a drafter's settings that apply to it."""
    sampled = drafter.settings.get("do_sample", False) if do_sample is None else do_sample
    id = "sample" if sampled else "greedy"
    known = lab.offered()[id].own_settings
    return Drafter(
        PLAIN, id, {name: value for name, value in drafter.settings.items() if name in known}
    )


def _why_not(lab: Playground, id: str) -> str | None:
    found = lab.offered().get(id)
    if found is None:
        return "This strategy is not available here."
    if found.decoder_only and lab.model.is_encoder_decoder:
        return f"It needs a decoder-only model; {lab.model.name} has an encoder."
    if id in _NEED_WEIGHTS:
        try:
            # Raises before anything runs if the weights are missing.
            lab.stream("a", [id], max_new_tokens=1)
        except PlaygroundError as error:
            return str(error)
    return None
