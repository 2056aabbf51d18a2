"""SynthID's Bayesian detector, where somebody brings a trained one (Dathathri et al. 2024).

Knows transformers' `BayesianDetectorModel` in a folder on this machine: safetensors only, nothing
of it is run as code. Refuses to train one, and to fetch one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
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

MOST_TOKENS = 20_000  # it holds depth x depth numbers for each


class Posterior(NamedTuple):
    """How probable the detector thinks a mark is, and on how many tokens it looked."""

    probability: float
    tokens_scored: int
    written_by: str | None  # the model whose texts it was trained on, where it says so


def bayesian(
    model: Model,
    text: str | Sequence[int],
    folder: str | Path,
    *,
    limits: Limits | None = None,
    **fields: Any,
) -> Posterior:
    """Ask the detector in a folder about a text. ``fields`` are those of
    `SynthIDTextWatermarkingConfig`; what is not given is as the detector was trained with."""
    marks.checked("synthid", fields, limits)
    with _bar_hidden():
        detector, trained = _load(Path(folder).expanduser())
    config = marks.checked("synthid", {**trained, **fields}, limits)
    assert isinstance(config, SynthIDTextWatermarkingConfig), "the scheme has this config only"
    if (keys := len(config.keys)) != (depth := detector.config.watermarking_depth):
        raise PlaygroundError(f"this detector knows {depth} layers; there are {keys} keys")
    ids = retokenize.ids_of(model, text, limits or Limits())
    if len(ids) > MOST_TOKENS:
        raise PlaygroundError(
            f"the text has {len(ids)} tokens; a Bayesian detector reads at most {MOST_TOKENS}"
        )
    judged = synthid.judge(model, ids, config)
    rows = [judged.coins[at] for at in judged.scored(once=False)]
    if not rows:
        raise PlaygroundError(f"a text of {len(ids)} tokens is too short to say")
    g_values = torch.tensor([rows])  # (1, tokens, layers)
    with torch.inference_mode():
        [probability] = detector(g_values, torch.ones(g_values.shape[:2]))[0].tolist()
    return Posterior(probability, len(rows), detector.config.model_name)


def _load(folder: Path) -> tuple[Any, dict[str, Any]]:
    """The detector, and the watermark it was trained on, where it says so."""
    if not folder.is_dir():
        raise PlaygroundError(f"there is no folder {str(folder)!r} with a Bayesian detector")
    here: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        config: Any = BayesianDetectorConfig.from_pretrained(folder, **here)
        depth = getattr(config, "watermarking_depth", None)
        if type(depth) is not int or not 1 <= depth <= marks.MOST_KEYS:
            raise PlaygroundError(f"{str(folder)!r} holds no Bayesian detector")
        load: Any = BayesianDetectorModel.from_pretrained
        detector, info = load(
            folder, config=config, use_safetensors=True, output_loading_info=True, **here
        )
    except PlaygroundError:
        raise
    except Exception as error:  # a foreign checkpoint can make the libraries raise anything
        first = str(error).split("\n")[0]
        raise PlaygroundError(f"cannot load {str(folder)!r}: {first}") from error
    if missing := sorted(info["missing_keys"]):
        raise PlaygroundError(f"{str(folder)!r} lacks {', '.join(missing)}: no Bayesian detector")
    trained = getattr(config, "watermarking_config", None)
    return detector.eval(), dict(trained) if isinstance(trained, dict) else {}


@contextmanager
def _bar_hidden() -> Iterator[None]:
    """A bar is for a download."""
    logging: Any = transformers.logging  # its functions carry no annotations
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
