"""Detects a watermark in a text: a verdict on every token and on the whole.

Counts, z-scores and p-values of green lists are those of transformers' `WatermarkDetector`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from transformers import WatermarkingConfig

from engine.errors import PlaygroundError
from engine.models.model import Model
from engine.settings import Limits
from engine.watermark import config as marks
from engine.watermark import retokenize, statistics, synthid
from engine.watermark.config import SCHEMES
from engine.watermark.detection import Detection, Layers, RoundTrip
from engine.watermark.token_scores import ScoredText, score_green_list
from engine.watermark.windows import over_length, scan

__all__ = ["SCHEMES", "Detection", "detect", "over_length", "scan"]

HIGHEST = 1000.0  # the largest z_threshold


def detect(
    model: Model,
    text: str | Sequence[int],
    *,
    scheme: str = "lefthash",
    z_threshold: float = statistics.Z_THRESHOLD,
    ignore_repeated: bool = False,
    limits: Limits | None = None,
    **fields: Any,
) -> Detection:
    """Detect a watermark in a text or in the tokens of a run, without its prompt.

    ``fields`` are those of `WatermarkingConfig` or, for ``synthid``, those of
    `SynthIDTextWatermarkingConfig`. Tokens are also decoded, encoded and scored again, as a
    detector would see them in a text.
    """
    limits = limits or Limits()
    _check(z_threshold, ignore_repeated)
    config = marks.build_config(scheme, fields, limits)
    ids = retokenize.ids_of(model, text, limits)
    scored = _scored(model, ids, config, limits)
    both = [scored.score(once=once) for once in (False, True)]
    score, independent = both[ignore_repeated], scored.independent()
    trip = None
    if not isinstance(text, str):
        read = retokenize.round_trip(model, ids)
        again = _scored(model, read, config, limits)
        found = again.score(once=ignore_repeated)
        survived = retokenize.survivors(model, ids, read)
        verdict = statistics.verdict(found, again.independent(), z_threshold, again.null)
        trip = RoundTrip(len(ids), survived, found, verdict)
    return Detection(
        scheme=scheme,
        **asdict(score),
        marked=score.tokens_scored > 0 and score.z_score > z_threshold,
        verdict=statistics.verdict(score, independent, z_threshold, scored.null),
        z_threshold=z_threshold,
        ignore_repeated=ignore_repeated,
        settings=config.to_dict(),
        with_repeats=both[0],
        without_repeats=both[1],
        independent=independent,
        chance=scored.null,
        tokens=scored.verdicts(ids, retokenize.token_texts(model, ids), once=ignore_repeated),
        layers=_layers(scored, z_threshold, ignore_repeated),
        round_trip=trip,
    )


def _scored(model: Model, ids: Sequence[int], config: marks.Config, limits: Limits) -> ScoredText:
    if isinstance(config, WatermarkingConfig):
        return score_green_list(model, ids, config, limits)
    return synthid.score_g_values(model, ids, config)


def _layers(scored: ScoredText, z_threshold: float, once: bool) -> Layers | None:
    return synthid.layers(scored, z_threshold, once=once) if scored.null.layered else None


def _check(z_threshold: Any, ignore_repeated: Any) -> None:
    number = isinstance(z_threshold, int | float) and not isinstance(z_threshold, bool)
    if not number or not -HIGHEST <= z_threshold <= HIGHEST:
        allowed = f"a number of at least {-HIGHEST:g} and at most {HIGHEST:g}"
        raise PlaygroundError(f"z_threshold is {z_threshold!r}; it must be {allowed}")
    if not isinstance(ignore_repeated, bool):
        raise PlaygroundError(f"ignore_repeated is {ignore_repeated!r}; it must be true or false")
