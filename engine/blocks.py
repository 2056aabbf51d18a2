"""The decoder layers of a model on a GPU in as few kernels as they can have.

A layer of a small model is mostly the way from one kernel to the next. In layers of the kind that
most models have, those that read one input are one product here, whose weight they share with it,
and what is between the products is done by kernels of our own. Each layer is checked against
transformers' own before any is used, and only a pool's ticks use them: whoever else runs the model
runs it as it was. Knows transformers' layers of that kind. Refuses to know ticks and strategies.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from engine.attention import BOOLEAN_MASKS
from engine.backend import Reading
from engine.pool_layer import Kernels, Plan, PoolLayer

log = logging.getLogger(__name__)


def _kernels(name: str) -> Any:
    """A module of kernels; None where there is no GPU to run them, nor Triton to make them."""
    if not torch.cuda.is_available():
        return None
    # By name: whoever takes this file elsewhere, as a recipe for transformers does, leaves them.
    try:
        return importlib.import_module(f"engine.triton_{name}")
    except ImportError:
        return None


triton_attention, triton_layer = _kernels("attention"), _kernels("layer")
_reading = _kernels("reading")
read: Callable[[Tensor, Tensor, int | None], Reading] = _reading.read if _reading else Reading.of

CLOSE = {4: 1e-3, 2: 0.03}  # how far a layer may be off, as a share of the largest number
CHILDREN = ("self_attn", "mlp", "input_layernorm", "post_attention_layernorm")
VISIBLE = (64, 2048)  # positions of a check: long pools have kernels of their own


class Block:
    """One decoder layer: attention, then a gated network, each behind a norm."""

    def __init__(self, layer: Any) -> None:
        attention, network = layer.self_attn, layer.mlp
        self._norms = _norm(layer.input_layernorm), _norm(layer.post_attention_layernorm)
        self._joined = join([attention.q_proj, attention.k_proj, attention.v_proj])
        self._out = attention.o_proj
        self._scale: float = attention.scaling
        self._size: int = attention.head_dim
        self._shared = attention.k_proj.out_features // self._size
        own = [getattr(attention, name, None) for name in ("q_norm", "k_norm")]
        self._own = (_norm(own[0]), _norm(own[1])) if all(own) else None
        self._network = join([network.gate_proj, network.up_proj])
        self._down = network.down_proj

    def __call__(
        self, hidden: Tensor, angles: Sequence[Tensor], mask: Tensor, own: PoolLayer
    ) -> Tensor:
        """What the layer makes of hidden states, (1, rows, width)."""
        if angles[0].shape[-1] != self._size:
            raise ValueError("not all of a head is turned")
        if not own.is_initialized:
            nothing = hidden.new_empty(1, self._shared, 0, self._size)
            own.lazy_initialization(nothing, nothing)
        keys, values, slots = own.room
        before = hidden[0]
        joined = linear(triton_layer.normalize(before, self._norms[0]), *self._joined)
        turned = angles[0][0].contiguous(), angles[1][0].contiguous()
        query = triton_layer.turn_and_write(joined, turned, slots, keys, values, self._own)
        attended = triton_attention.attend(query, keys, values, mask[0, 0], self._scale)
        summed, normed = triton_layer.add_and_normalize(before, self._out(attended), self._norms[1])
        gated = triton_layer.gate(linear(normed, *self._network))
        grown: Tensor = summed + self._down(gated)
        return grown[None]


class Quick(nn.Module):
    """A decoder layer that a pool's ticks run as a block."""

    block: Block

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        """What the layer makes of hidden states, by whichever way the cache says."""
        own = _own_part(self, kwargs.get("past_key_values"))
        if own is None or own.kernels is Kernels.MANY:
            return super().forward(hidden_states, *args, **kwargs)
        angles, mask = kwargs["position_embeddings"], kwargs["attention_mask"]
        if own.kernels is Kernels.FEW:
            return self.block(hidden_states, angles, mask, own)
        expected = super().forward(hidden_states, *args, **kwargs)
        _check([*own.written], expected, self.block(hidden_states, angles, mask, own), own)
        return expected


def quicken(model: PreTrainedModel) -> bool:
    """Have a model's layers run as blocks where they are of that kind; whether they do now."""
    layers: list[Any] = [module for module in model.modules() if isinstance(module, Quick)]
    if layers:
        return True
    layers = list(_layers(model))
    if triton_layer is None or not layers or model.config._attn_implementation not in BOOLEAN_MASKS:
        return False
    kinds = [type(layer) for layer in layers]
    try:
        for layer, kind in zip(layers, kinds, strict=True):
            layer.block = Block(layer)
            layer.__class__ = _quick(kind)  # type: ignore[arg-type]  # a class is hashable
        for visible in VISIBLE:
            _try(model, visible, Kernels.BOTH)
    except Exception as error:  # whatever a layer has that no other has
        log.info("layers stay as they are: %s", error)
        for layer, kind in zip(layers, kinds, strict=True):
            layer.__class__ = kind
            vars(layer).pop("block", None)
        return False
    return True


@cache
def _quick(kind: type[nn.Module]) -> type[nn.Module]:
    return type(kind.__name__, (Quick, kind), {})


def join(members: Sequence[nn.Linear]) -> tuple[Tensor, Tensor | None]:
    """One weight and one bias for layers that read one input; theirs are parts of it from now."""
    if any(type(member) is not nn.Linear for member in members):
        raise ValueError("these are no plain linear layers")
    return _joined([member.weight for member in members]), _joined(
        [member.bias for member in members]
    )


def _joined(parts: Sequence[Any]) -> Any:
    if all(part is None for part in parts):
        return None
    whole = torch.cat([part.data for part in parts])
    start = 0
    for part in parts:
        part.data = whole[start : start + len(part)]
        start += len(part)
    return whole


def _layers(model: PreTrainedModel) -> Iterator[nn.Module]:
    """The decoder layers, if all are of the kind that a block knows."""
    count = model.config.get_text_config(decoder=True).num_hidden_layers
    found = [
        module
        for module in model.modules()
        if [name for name, _ in module.named_children()] == list(CHILDREN)
    ]
    plain = {"hidden_act": "silu", "is_encoder_decoder": False}
    config = model.config.get_text_config(decoder=True)
    if len(found) == count and all(
        getattr(config, name, value) == value for name, value in plain.items()
    ):
        yield from found


def _norm(module: Any) -> Any:
    return triton_layer.Norm(module.weight, module.variance_epsilon)


def _own_part(layer: Any, cache: Any) -> PoolLayer | None:
    layers = getattr(cache, "layers", ())
    # Only the first is looked at: a cache of transformers gets the others when they are written.
    if not layers or not isinstance(layers[0], PoolLayer):
        return None
    own: PoolLayer = layers[layer.self_attn.layer_idx]
    return own


@torch.inference_mode()
def _try(model: PreTrainedModel, visible: int, kernels: Kernels) -> None:
    """Run a few tokens, so that every layer has been used."""
    plan = Plan(visible)
    plan.kernels, plan.visible = kernels, visible
    layers = model.config.get_text_config(decoder=True).num_hidden_layers
    tokens = torch.arange(5, 14, device=model.device)
    plan.slots = torch.arange(visible - 9, visible, device=model.device)
    seen = torch.zeros(9, visible, dtype=torch.bool, device=model.device)
    seen[:, -9:] = torch.ones(9, 9, dtype=torch.bool, device=model.device).tril()
    model(
        input_ids=tokens[None],
        position_ids=(tokens - 5)[None],
        attention_mask=seen[None, None],
        past_key_values=Cache(layers=[PoolLayer(plan) for _ in range(layers)]),
        use_cache=True,
    )


def _check(written: Sequence[Tensor], expected: Tensor, got: Tensor, own: PoolLayer) -> None:
    pairs = [(got, expected), *zip(own.written, written, strict=True)]
    for one, other in pairs:
        apart = ((one - other).abs().max() / other.abs().max().clamp(min=1e-6)).item()
        if not apart < CLOSE[other.element_size()]:
            raise ValueError(f"a layer in few kernels is off by {apart:.2g} of the largest number")
