"""The decoder layers of a model in as few kernels as they can have.

A layer of a small model is mostly the way from one kernel to the next. In layers of the kind that
most models have, those that read one input are one product here, and what is between the products
is done in few steps: on a GPU by kernels of our own. Each layer is checked against transformers'
own before any is used, and only a pool's ticks use them: whoever else runs the model runs it as it
was. Knows transformers' layers of that kind. Refuses to know ticks and strategies.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from engine.accel.graphs import recordable
from engine.accel.grouped_attention import BOOLEAN_MASKS
from engine.accel.kernels import kernels
from engine.accel.packed_linear import family_of
from engine.trie.backend import Reading
from engine.trie.cache_layer import Kernels, Plan, PoolLayer

log = logging.getLogger(__name__)


_gpu = torch.cuda.is_available()
torch_layer, triton_layer = kernels("torch_layer"), kernels("triton_layer", there=_gpu)
_reading = kernels("triton_statistics", there=_gpu)
read: Callable[[Tensor, Tensor | None, int | None], Reading] = (
    _reading.read if _reading else Reading.of
)

CLOSE = {4: 1e-3, 2: 0.03}  # how far a layer may be off, as a share of the largest number
CHILDREN = ("self_attn", "mlp", "input_layernorm", "post_attention_layernorm")
VISIBLE = (64, 2048)  # positions of a check: long pools have kernels of their own


class Block:
    """One decoder layer: attention, then a gated network, each behind a norm.

    ``steps`` is the module that has what is between the products.
    """

    def __init__(self, layer: Any, steps: Any) -> None:
        self._steps = steps
        attention, network = layer.self_attn, layer.mlp
        norms = layer.input_layernorm, layer.post_attention_layernorm
        self._norms = [self._norm(norm) for norm in norms]
        self._joined = family_of([attention.q_proj, attention.k_proj, attention.v_proj])
        self._out = attention.o_proj
        self._scale: float = attention.scaling
        self._size: int = attention.head_dim
        self._shared = attention.k_proj.out_features // self._size
        self._groups = attention.q_proj.out_features // attention.k_proj.out_features
        own = [getattr(attention, name, None) for name in ("q_norm", "k_norm")]
        self._own = [self._norm(norm) for norm in own] if all(own) else None
        self._network = family_of([network.gate_proj, network.up_proj])
        self._down = network.down_proj

    def _norm(self, module: Any) -> Any:
        return self._steps.Norm(module.weight, module.variance_epsilon)

    def __call__(
        self, hidden: Tensor, angles: Sequence[Tensor], mask: Tensor, own: PoolLayer
    ) -> Tensor:
        """What the layer makes of hidden states, (1, rows, width)."""
        if angles[0].shape[-1] != self._size:
            raise ValueError("not all of a head is turned")
        if not own.is_initialized:
            nothing = hidden.new_empty(1, self._shared, 0, self._size)
            own.lazy_initialization(nothing, nothing)
        steps, (keys, values, slots) = self._steps, own.room
        ready = own.ready(lambda: steps.ready(angles, mask[0, 0], self._groups))
        before = hidden[0]
        joined = self._joined(steps.normalize(before, self._norms[0]))
        query = steps.turn_and_write(joined, ready.angles, slots, keys, values, self._own)
        attended = steps.attend(query, keys, values, ready.mask, self._scale)
        summed, normed = steps.add_and_normalize(before, self._out(attended), self._norms[1])
        gated = steps.gate(self._network(normed))
        grown: Tensor = summed + self._down(gated)
        return grown[None]


class Quick(nn.Module):
    """A decoder layer that a pool's ticks run as a block."""

    block: Block

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        """What the layer makes of hidden states, by whichever way the cache says."""
        own = _own_part(self, kwargs.get("past_key_values"))
        if own is None or own.kernels is Kernels.REFERENCE:
            return super().forward(hidden_states, *args, **kwargs)
        angles, mask = kwargs["position_embeddings"], kwargs["attention_mask"]
        if own.kernels is Kernels.FUSED:
            return self.block(hidden_states, angles, mask, own)
        expected = super().forward(hidden_states, *args, **kwargs)
        _check([*own.written], expected, self.block(hidden_states, angles, mask, own), own)
        return expected


def quicken(model: PreTrainedModel) -> str | None:
    """Run a model's layers as blocks; returns the reason where they cannot be."""
    layers: list[Any] = [module for module in model.modules() if isinstance(module, Quick)]
    if layers:
        return None
    layers, steps = list(_layers(model)), _steps(model)
    if steps is None:
        return "no fused layers for this device and dtype"
    if not layers:
        return f"{type(model).__name__} has layers of another structure"
    if model.config._attn_implementation not in BOOLEAN_MASKS:
        return f"attention is {model.config._attn_implementation}, not sdpa"
    kinds = [type(layer) for layer in layers]
    try:
        for layer, kind in zip(layers, kinds, strict=True):
            layer.block = Block(layer, steps)
            layer.__class__ = _quick(kind)  # type: ignore[arg-type]  # a class is hashable
        for visible in VISIBLE if steps is triton_layer else VISIBLE[:1]:
            _try(model, visible, Kernels.VERIFY)
    except Exception as error:  # a layer may differ in ways its structure does not show
        log.warning("%s runs without fused layers: %s", type(model).__name__, error)
        for layer, kind in zip(layers, kinds, strict=True):
            layer.__class__ = kind
            vars(layer).pop("block", None)
        return str(error)
    return None


def _steps(model: PreTrainedModel) -> Any:
    """The steps between a layer's products where the model is; None where there are none."""
    if recordable(model):
        return triton_layer
    kinds = {(weight.device.type, weight.dtype) for weight in model.parameters()}
    return torch_layer if kinds == {("cpu", torch.float32)} else None


@cache
def _quick(kind: type[nn.Module]) -> type[nn.Module]:
    return type(kind.__name__, (Quick, kind), {})


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
    model.base_model(
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
