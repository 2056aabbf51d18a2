"""Runs a trained Bayesian detector for SynthID watermarks (Dathathri et al. 2024).

The detector is a folder on this machine, as `BayesianDetectorModel.save_pretrained` writes it:
safetensors only, no code of it is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from transformers import (
    BayesianDetectorConfig,
    BayesianDetectorModel,
    SynthIDTextWatermarkingConfig,
)

from engine.errors import PlaygroundError
from engine.models.model import Model
from engine.settings import Limits
from engine.watermark import config as marks
from engine.watermark import retokenize, synthid

MOST_TOKENS = 20_000  # the detector needs depth × depth numbers for each


class Posterior(NamedTuple):
    """The probability of a watermark, and the number of tokens it is based on."""

    probability: float
    tokens_scored: int
    written_by: str | None  # the model whose texts the detector was trained on, if it says so


def bayesian(
    model: Model,
    text: str | Sequence[int],
    folder: str | Path,
    *,
    limits: Limits | None = None,
    **fields: Any,
) -> Posterior:
    """The posterior probability of a watermark, by the detector in a folder. ``fields`` are those
    of `SynthIDTextWatermarkingConfig`; the others are as the detector was trained."""
    marks.build_config("synthid", fields, limits)
    detector, trained = _load(Path(folder).expanduser())
    config = marks.build_config("synthid", {**trained, **fields}, limits)
    assert isinstance(config, SynthIDTextWatermarkingConfig), "the config of this scheme"
    if (keys := len(config.keys)) != (depth := detector.config.watermarking_depth):
        raise PlaygroundError(f"the detector has {depth} layers and there are {keys} keys")
    ids = retokenize.ids_of(model, text, limits or Limits())
    if len(ids) > MOST_TOKENS:
        raise PlaygroundError(
            f"the text has {len(ids)} tokens; the limit of a Bayesian detector is {MOST_TOKENS}"
        )
    scored = synthid.score_g_values(model, ids, config)
    rows = [scored.trials[at] for at in scored.scored(once=False)]
    if not rows:
        raise PlaygroundError(f"a text of {len(ids)} tokens is too short to say")
    g_values = torch.tensor([rows])  # (1, tokens, layers)
    with torch.inference_mode():
        [probability] = detector(g_values, torch.ones(g_values.shape[:2]))[0].tolist()
    return Posterior(probability, len(rows), detector.config.model_name)


def _load(folder: Path) -> tuple[Any, dict[str, Any]]:
    """The detector, and the fields of the watermark it was trained on, if it says so."""
    if not folder.is_dir():
        raise PlaygroundError(f"there is no folder {str(folder)!r} with a Bayesian detector")
    try:
        config: Any = BayesianDetectorConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        depth = getattr(config, "watermarking_depth", None)
        if type(depth) is not int or not 1 <= depth <= marks.MOST_KEYS:
            raise PlaygroundError(f"{str(folder)!r} does not contain a Bayesian detector")
        untyped: Any = BayesianDetectorModel  # transformers has no types here
        detector = untyped(config)
        # Not `from_pretrained`: its progress bar can only be hidden for the whole process.
        state = load_file(folder / "model.safetensors")
        missing = sorted(detector.load_state_dict(state, strict=False).missing_keys)
    except PlaygroundError:
        raise
    except Exception as error:  # a foreign checkpoint can make the libraries raise anything
        first = str(error).split("\n")[0]
        raise PlaygroundError(f"cannot load {str(folder)!r}: {first}") from error
    if missing:
        raise PlaygroundError(
            f"{str(folder)!r} lacks {', '.join(missing)}: it is not a Bayesian detector"
        )
    trained = getattr(config, "watermarking_config", None)
    return detector.eval(), dict(trained) if isinstance(trained, dict) else {}
