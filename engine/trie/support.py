"""Decides whether the trie backend can run a model: by its config, then by comparing logits.

A model that passes gives the same logits on both backends; any other runs on the plain backend.
"""

from __future__ import annotations

import inspect
import logging
import sys

import torch
from transformers import PreTrainedModel

from engine.trie.backend import Backend
from engine.trie.plain import Plain
from engine.trie.pool import Pool

log = logging.getLogger(__name__)

ATTENTION = {"full_attention", "sliding_attention"}
UNLIMITED = sys.maxsize
MINIMUM = 8  # tokens: a shorter limit is not worth a trie
# How far apart the logits of the two backends may be, in standard deviations.
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3, torch.bfloat16: 0.2, torch.float16: 0.1}


def trie_length(model: PreTrainedModel) -> tuple[int, str | None]:
    """The longest text the trie backend can decode with this model, and why it is limited.

    The length is 0 where the model must run on the plain backend. ``model`` is a view that is not
    accelerated: fused layers are checked one by one, and in half precision the rounding of a whole
    model would differ too much.
    """
    length, reason = _declared_length(model)
    if length >= MINIMUM:
        failure = _disagreement(model)
        length, reason = (length, reason) if failure is None else (0, failure)
    if length < MINIMUM:
        log.warning("%s runs on the plain backend: %s", type(model).__name__, reason)
        return 0, reason
    return length, reason


def _declared_length(model: PreTrainedModel) -> tuple[int, str | None]:
    """Up to which length attention is full and positions are free, according to the config."""
    config = model.config.get_text_config(decoder=True)
    if model.config.is_encoder_decoder:
        return 0, "it is an encoder-decoder"
    if "position_ids" not in inspect.signature(model.forward).parameters:
        return 0, "its forward pass takes no position_ids"
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds - ATTENTION:
        return 0, f"it has layers of type {', '.join(sorted(kinds - ATTENTION))}"
    limits: list[tuple[int, str | None]] = [(UNLIMITED, None)]
    everywhere_full = getattr(config, "layer_types", None) and kinds == {"full_attention"}
    if (window := getattr(config, "sliding_window", None)) and not everywhere_full:
        # Within the window, sliding attention is full attention.
        limits.append((window, f"its attention window is {window} tokens"))
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    if rope.get("rope_type") in ("dynamic", "longrope"):
        # These change every position once one of them passes the length of pre-training.
        length = rope.get("original_max_position_embeddings", config.max_position_embeddings)
        limits.append((length, f"its {rope['rope_type']} positions change after {length} tokens"))
    return min(limits, key=lambda limit: limit[0])


def _disagreement(model: PreTrainedModel) -> str | None:
    """Why two branches of one trie do not get the logits of the same texts run alone, if so."""

    def logits(backend: Backend) -> torch.Tensor:
        start = backend.top(None).descend([3, 5, 4])
        # Of one length: the plain backend needs one pass for both.
        tips = [start.descend([2, 6]), start.descend([7, 2])]
        output_rows = backend.evaluate(tips)
        return torch.stack([output_rows[tip].output.logits[output_rows[tip].row] for tip in tips])

    try:
        pooled, plain = logits(Pool(model, positions=64)), logits(Plain(model))
    except Exception as error:  # a model may refuse masks and caches it was not written for
        log.info("the trie backend fails on %s", type(model).__name__, exc_info=True)
        return f"the trie backend fails on it: {type(error).__name__}: {error}"
    apart = float((pooled - plain).abs().max() / plain.std())
    if apart < TOLERANCE.get(model.dtype, 0.2):
        return None
    return f"its logits on the trie differ by {apart:.2g} standard deviations"
