"""Watermark detection with transformers' own detector.

Knows the green-list schemes. Refuses to judge a text that is too short to say anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from transformers import WatermarkDetector, WatermarkingConfig

from engine.errors import PlaygroundError, did_you_mean
from engine.model import Model

SCHEMES = ("lefthash", "selfhash")


@dataclass(frozen=True)
class Detection:
    """What the detector counted; ``z_score`` and ``p_value`` are against an unmarked text."""

    scheme: str
    tokens_scored: int
    green_tokens: int
    green_fraction: float
    z_score: float
    p_value: float
    marked: bool

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)


def detect(
    model: Model,
    text: str | Sequence[int],
    *,
    scheme: str = "lefthash",
    z_threshold: float = 3.0,
    ignore_repeated: bool = False,
    **fields: Any,
) -> Detection:
    """Look for a green-list watermark in a text, or in the tokens it was written in.

    ``fields`` are those of `WatermarkingConfig`.
    """
    if scheme not in SCHEMES:
        known = " or ".join(SCHEMES)
        raise PlaygroundError(f"unknown scheme {scheme!r}{did_you_mean(scheme, SCHEMES)}; {known}")
    try:
        config: Any = WatermarkingConfig(seeding_scheme=scheme, **fields)
        config.validate()
    except (TypeError, ValueError) as error:
        raise PlaygroundError(f"this is no watermark: {error}") from error
    if isinstance(text, str):
        text = model.tokenizer(text, add_special_tokens=False).input_ids
    ids: Any = torch.tensor([list(text)], dtype=torch.long)
    if ids.shape[1] <= config.context_width:
        raise PlaygroundError(
            f"a text of {ids.shape[1]} tokens is too short to say; this scheme scores a token by"
            f" the {config.context_width} before it"
        )
    detector = WatermarkDetector(
        model_config=model.module.config,
        device=str(model.device),
        watermarking_config=config,
        ignore_repeated_ngrams=ignore_repeated,
    )
    found: Any = detector(ids.to(model.device), z_threshold=z_threshold, return_dict=True)
    return Detection(
        scheme=scheme,
        tokens_scored=int(found.num_tokens_scored[0]),
        green_tokens=int(found.num_green_tokens[0]),
        green_fraction=float(found.green_fraction[0]),
        z_score=float(found.z_score[0]),
        p_value=float(found.p_value[0]),
        marked=bool(found.prediction[0]),
    )
