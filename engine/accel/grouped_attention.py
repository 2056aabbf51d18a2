"""Attention on a CPU for heads that share keys: nothing is copied.

Transformers copies the keys and values of a shared head once for each head that reads them, in
every layer of every tick. Heads that share a key head are as well further queries of that one.
Knows transformers' attention functions. Refuses to know where keys come from.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

GROUPED = "grouped_sdpa"
BOOLEAN_MASKS = ("sdpa", GROUPED)  # what takes a mask as truth values
_RARE = ("position_bias", "softcap", "cache")  # what transformers' own function is for


def grouped(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **further: Any,
) -> tuple[Tensor, None]:
    """Attend, (batch, heads, queries, size) to (batch, key heads, keys, size)."""
    batch, heads, length, size = query.shape
    groups = heads // key.shape[1]
    rare = further.get("dropout") or any(further.get(name) is not None for name in _RARE)
    if groups == 1 or rare or attention_mask is None or attention_mask.shape[1] != 1:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **further
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


def group(model: PreTrainedModel) -> None:
    """Have a model attend without copies, where its attention is torch's own."""
    if model.config._attn_implementation == "sdpa":
        model.set_attn_implementation(GROUPED)
