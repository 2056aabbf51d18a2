"""Scores the tokens of a text by their SynthID g-values (Dathathri et al. 2024).

Transformers' processor gives every token one random bit, its g-value, per layer of the tournament;
a marked text has more ones. Under the null hypothesis g-values are independent, with the share of
ones in the sampling table. That holds for contexts that occur once and for keys with different
places in the table: repeated contexts are left out, as in the paper, and colliding keys rejected.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from transformers import SynthIDTextWatermarkingConfig, SynthIDTextWatermarkLogitsProcessor

from engine.errors import PlaygroundError
from engine.models.model import Model
from engine.watermark.detection import Layers, Why
from engine.watermark.statistics import NullHypothesis, binomial_tail, normal_tail
from engine.watermark.token_scores import ScoredText, repeats

CHUNK = 16_384  # n-grams whose g-values are computed at once


def score_g_values(
    model: Model, ids: Sequence[int], config: SynthIDTextWatermarkingConfig
) -> ScoredText:
    """Score every token with a complete context, up to the end of the text. The processor does not
    mark a context again that is in its history, so that is not scored either."""
    processor = _processor(model, config)
    share = float(processor.sampling_table.double().mean())
    if not 0 < share < 1:
        raise PlaygroundError(
            f"all {config.sampling_table_size} values of the sampling table are equal; use another"
            " sampling_table_seed or a larger sampling_table_size"
        )
    unscored = min(config.ngram_len - 1, len(ids))
    tokens = torch.tensor([list(ids)], device=model.device)
    bits = _g_values(processor, tokens)  # (tokens, layers)
    g_values = [tuple(row) for row in bits.tolist()]
    contexts = [*zip(*(ids[at:] for at in range(unscored)), strict=False)][: len(g_values)]
    why: list[Why] = ["context"] * unscored
    why += _masks(model, ids, contexts, config)
    repeated = [False] * unscored + repeats(contexts)
    weights = layer_weights(len(config.keys))
    return ScoredText(
        values=[0.0] * unscored + (bits.double() @ weights).tolist(),
        trials=[
            () if said else row for said, row in zip(why, [()] * unscored + g_values, strict=True)
        ],
        why=why,
        repeated=repeated,
        redrawn=repeated,
        null=NullHypothesis(
            mean=share,
            variance=share * (1 - share) * float(weights.square().sum()),
            share=share,
            coins=len(weights),
            layered=True,
        ),
    )


def layer_weights(depth: int) -> Tensor:
    """The weight of each layer, falling linearly from 10 to 1 and normalized: later layers have
    fewer candidates to choose from."""
    falling = torch.linspace(10, 1, depth, dtype=torch.float64)
    return falling / falling.sum()


def layers(text: ScoredText, z_threshold: float, *, once: bool) -> Layers:
    """The plain and the weighted mean of the scored g-values."""
    places = text.scored(once=once)
    rows = [text.trials[at] for at in places]
    share, depth = text.null.share, text.null.coins
    trials, ones = len(rows) * depth, sum(map(sum, rows))
    spread = math.sqrt(share * (1 - share) / max(1, trials))
    weighted_spread = math.sqrt(text.null.variance / max(1, len(rows)))
    mean = ones / trials if trials else share
    weighted = math.fsum(text.values[at] for at in places) / len(rows) if rows else share
    z = (weighted - share) / weighted_spread
    return Layers(
        ones=ones,
        g_values=trials,
        share=share,
        mean=mean,
        mean_z=(mean - share) / spread,
        mean_p=binomial_tail(ones, trials, share),
        mean_threshold=share + z_threshold * spread,
        weighted_mean=weighted,
        weighted_z=z,
        weighted_p=normal_tail(z),
        weighted_threshold=share + z_threshold * weighted_spread,
        by_layer=tuple(sum(layer) / len(rows) for layer in zip(*rows, strict=True)),
    )


def _g_values(processor: SynthIDTextWatermarkLogitsProcessor, tokens: Tensor) -> Tensor:
    """The g-values of each token with a complete context: (tokens, layers)."""
    before, rows = processor.ngram_len - 1, [tokens.new_zeros(0, len(processor.keys))]
    for start in range(0, tokens.shape[1] - before, CHUNK):
        part: Any = tokens[:, start : start + CHUNK + before]
        rows.append(processor.compute_g_values(part)[0])
    return torch.cat(rows).cpu()


def _masks(
    model: Model,
    ids: Sequence[int],
    contexts: Sequence[tuple[int, ...]],
    config: SynthIDTextWatermarkingConfig,
) -> list[Why]:
    """Why the token after each context is not scored, or an empty string. Equal to the processor's
    two masks, in linear time."""
    end = model.tokenizer.eos_token_id
    over = ids.index(end) if end in ids else len(ids)
    last: dict[tuple[int, ...], int] = {}
    masks: list[Why] = []
    for at, context in enumerate(contexts):
        known = at - last.get(context, -math.inf) <= config.context_history_size
        last[context] = at
        masks.append("eos" if at + len(context) >= over else "repeated" if known else "")
    return masks


def _processor(
    model: Model, config: SynthIDTextWatermarkingConfig
) -> SynthIDTextWatermarkLogitsProcessor:
    places = [key % config.sampling_table_size for key in config.keys]
    if len(set(places)) < len(places):
        raise PlaygroundError(
            f"keys is {list(config.keys)!r}; two of them differ by a multiple of"
            f" sampling_table_size ({config.sampling_table_size}) and would give equal layers"
        )
    return _cached_processor(
        config.ngram_len,
        tuple(config.keys),
        config.sampling_table_size,
        config.sampling_table_seed,
        config.context_history_size,
        model.device,
    )


@lru_cache(maxsize=8)
def _cached_processor(
    ngram_len: int,
    keys: tuple[int, ...],
    sampling_table_size: int,
    sampling_table_seed: int,
    context_history_size: int,
    device: torch.device,
) -> SynthIDTextWatermarkLogitsProcessor:
    """Only the processor's tables are read, so that texts can share it."""
    return SynthIDTextWatermarkLogitsProcessor(
        ngram_len=ngram_len,
        keys=list(keys),
        sampling_table_size=sampling_table_size,
        sampling_table_seed=sampling_table_seed,
        context_history_size=context_history_size,
        device=device,
    )
