"""Attention on a CPU for heads that share keys, without copies.

transformers copies the keys and values of a shared head once for each head that reads them, in
every layer of every pass. Heads that share a key head can as well be further queries of that head.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from engine.models.view import attention_of

GROUPED = "grouped_sdpa"
_SPECIAL = ("position_bias", "softcap", "cache")  # arguments that only transformers' function takes


def grouped(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend, (batch, heads, queries, size) to (batch, key heads, keys, size)."""
    batch, heads, length, size = query.shape
    groups = heads // key.shape[1]
    special = kwargs.get("dropout") or any(kwargs.get(name) is not None for name in _SPECIAL)
    if groups == 1 or special or attention_mask is None or attention_mask.shape[1] != 1:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
    attended = scaled_dot_product_attention(
        query.reshape(batch, heads // groups, groups * length, size),
        key,
        value,
        attn_mask=attention_mask.repeat(1, 1, groups, 1),
        scale=scaling,
    )
    return attended.view(batch, heads, length, size).transpose(1, 2).contiguous(), None


AttentionInterface.register(GROUPED, grouped)
AttentionMaskInterface.register(GROUPED, sdpa_mask)


def group(model: PreTrainedModel) -> bool:
    """Use grouped attention in a view, or in a model the caller owns; whether it is used.

    Only where the model's attention is torch's own.
    """
    if attention_of(model) == "sdpa":
        model.set_attn_implementation(GROUPED)
    return attention_of(model) == GROUPED
