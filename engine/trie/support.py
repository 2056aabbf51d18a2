"""Which models the trie backend may run: decided by what they declare, then by trying.

Knows transformers' configs and both backends. A model that passes gives the same logits either
way; a model that does not runs on the plain backend.
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
# How far apart the two backends may be, in standard deviations of the logits.
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3, torch.bfloat16: 0.2, torch.float16: 0.1}


def trie_length(model: PreTrainedModel) -> int:
    """The longest text the trie backend may decode with this model; 0 where it may none."""
    declared = _declared_length(model)
    if declared < 8 or not _agrees(model):
        log.info("%s runs on the plain backend", type(model).__name__)
        return 0
    return declared


def _declared_length(model: PreTrainedModel) -> int:
    """Up to which length attention is full and positions are free, as far as the config tells."""
    config = model.config.get_text_config(decoder=True)
    parameters = inspect.signature(model.forward).parameters
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if model.config.is_encoder_decoder or "position_ids" not in parameters or kinds - ATTENTION:
        return 0
    limits = [UNLIMITED]
    everywhere_full = getattr(config, "layer_types", None) and kinds == {"full_attention"}
    if (window := getattr(config, "sliding_window", None)) and not everywhere_full:
        limits.append(window)  # within the window, sliding attention is full attention
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    if rope.get("rope_type") in ("dynamic", "longrope"):
        # These change every position once one of them passes the length of pre-training.
        limits.append(rope.get("original_max_position_embeddings", config.max_position_embeddings))
    return min(limits)


def _agrees(model: PreTrainedModel) -> bool:
    """Whether two branches of one trie get the logits that the same texts get by themselves."""

    def logits(backend: Backend) -> torch.Tensor:
        beginning = backend.top(None).descend([3, 5, 4])
        # Of one length: by themselves they are one pass then.
        tips = [beginning.descend([2, 6]), beginning.descend([7, 2])]
        places = backend.evaluate(tips)
        return torch.stack([places[tip].reading.logits[places[tip].row] for tip in tips])

    try:
        # Layers as they are: kernels of our own are checked layer by layer, and in half precision
        # a whole model makes much of how they round.
        pooled, plain = logits(Pool(model, positions=64, quick=False)), logits(Plain(model))
    except Exception:  # whatever a model makes of masks and caches it was not written for
        log.info("the trie backend fails on %s", type(model).__name__, exc_info=True)
        return False
    apart = (pooled - plain).abs().max() / plain.std()
    return bool(apart < TOLERANCE.get(model.dtype, 0.2))
