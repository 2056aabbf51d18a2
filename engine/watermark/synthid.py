"""SynthID's g-values of a text, and what they say (Dathathri et al. 2024).

Knows transformers' processor, which gives every token one coin flip per layer of its tournament: a
marked text has won more of them. Refuses to know other schemes.

Against chance: an unmarked text's g-values are independent coins, as often 1 as the sampling table
is. That holds for contexts that occur once and for keys that fall on different places of the
table, so repeated contexts are left out as the paper does, and keys that fall together are refused.
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
from engine.watermark.statistics import Chance, binomial_tail, normal_tail
from engine.watermark.token_scores import Judged, seen_before

CHUNK = 16_384  # n-grams whose g-values are computed at once


def judge(model: Model, ids: Sequence[int], config: SynthIDTextWatermarkingConfig) -> Judged:
    """The g-values of every token that has a whole context, up to the end of the text. A context
    that the processor remembers was not marked again and is not scored."""
    processor = _processor(model, config)
    share = float(processor.sampling_table.double().mean())
    if not 0 < share < 1:
        raise PlaygroundError(
            f"the sampling table has {config.sampling_table_size} coin flips, all of them alike;"
            " another sampling_table_seed or a larger table tells texts apart"
        )
    unscored = min(config.ngram_len - 1, len(ids))
    tokens = torch.tensor([list(ids)], device=model.device)
    tossed = _g_values(processor, tokens)  # (tokens, layers)
    g_values = [tuple(row) for row in tossed.tolist()]
    contexts = [*zip(*(ids[at:] for at in range(unscored)), strict=False)][: len(g_values)]
    why: list[Why] = ["context"] * unscored
    why += _masks(model, ids, contexts, config)
    repeated = [False] * unscored + seen_before(contexts)
    weights = layer_weights(len(config.keys))
    return Judged(
        values=[0.0] * unscored + (tossed.double() @ weights).tolist(),
        coins=[
            () if said else row for said, row in zip(why, [()] * unscored + g_values, strict=True)
        ],
        why=why,
        repeated=repeated,
        redrawn=repeated,
        chance=Chance(
            mean=share,
            variance=share * (1 - share) * float(weights.square().sum()),
            share=share,
            coins=len(weights),
            layered=True,
        ),
    )


def layer_weights(depth: int) -> Tensor:
    """What each layer counts: later layers have less left to choose from, so they say less. They
    fall evenly from 10 to 1, and add up to 1."""
    falling = torch.linspace(10, 1, depth, dtype=torch.float64)
    return falling / falling.sum()


def layers(judged: Judged, z_threshold: float, *, once: bool) -> Layers:
    """The plain and the weighted mean of the g-values that count, against chance."""
    places = judged.scored(once=once)
    rows = [judged.coins[at] for at in places]
    share, depth = judged.chance.share, judged.chance.coins
    coins, ones = len(rows) * depth, sum(map(sum, rows))
    spread = math.sqrt(share * (1 - share) / max(1, coins))
    weighted_spread = math.sqrt(judged.chance.variance / max(1, len(rows)))
    mean = ones / coins if coins else share
    weighted = math.fsum(judged.values[at] for at in places) / len(rows) if rows else share
    z = (weighted - share) / weighted_spread
    return Layers(
        ones=ones,
        g_values=coins,
        share=share,
        mean=mean,
        mean_z=(mean - share) / spread,
        mean_p=binomial_tail(ones, coins, share),
        mean_threshold=share + z_threshold * spread,
        weighted_mean=weighted,
        weighted_z=z,
        weighted_p=normal_tail(z),
        weighted_threshold=share + z_threshold * weighted_spread,
        by_layer=tuple(sum(layer) / len(rows) for layer in zip(*rows, strict=True)),
    )


def _g_values(processor: SynthIDTextWatermarkLogitsProcessor, tokens: Tensor) -> Tensor:
    """One row of g-values per token with a whole context."""
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
    """Why the token after each context is not scored, or nothing: the processor's two masks, in
    one walk instead of a look through its whole memory per token."""
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
            f"keys is {list(config.keys)!r}; they must differ by more than multiples of"
            f" sampling_table_size ({config.sampling_table_size}): layers would repeat each other"
        )
    return _made(
        config.ngram_len,
        tuple(config.keys),
        config.sampling_table_size,
        config.sampling_table_seed,
        config.context_history_size,
        model.device,
    )


@lru_cache(maxsize=8)
def _made(
    ngram_len: int,
    keys: tuple[int, ...],
    sampling_table_size: int,
    sampling_table_seed: int,
    context_history_size: int,
    device: torch.device,
) -> SynthIDTextWatermarkLogitsProcessor:
    """Only its tables are read here, so one may serve many texts."""
    return SynthIDTextWatermarkLogitsProcessor(
        ngram_len=ngram_len,
        keys=list(keys),
        sampling_table_size=sampling_table_size,
        sampling_table_seed=sampling_table_seed,
        context_history_size=context_history_size,
        device=device,
    )
