"""Decoder layers of the Llama kind in as few kernels as possible.

A layer of a small model spends most of its time between kernels. Projections that read one input
are one product here, and the steps between the products are few: on a GPU, Triton kernels of our
own. Layers are fused in a view of the model, never in the model itself, and each one is checked
against transformers' own before any is used. Only a pool's passes use them: without its cache, a
layer runs as transformers wrote it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from engine.accel.graphs import recordable
from engine.accel.kernels import kernels
from engine.accel.packed_linear import LinearGroup, group_of
from engine.accel.torch_layer import OPS as TORCH_OPS
from engine.accel.torch_layer import LayerOps, Norm
from engine.models.memory import free_memory
from engine.models.view import attention_of, is_modified, takes_boolean_masks
from engine.trie.cache_layer import Plan, PoolLayer

TOLERANCE = {4: 1e-3, 2: 0.03}  # by bytes of a number, as a share of the largest number
CHILDREN = ("self_attn", "mlp", "input_layernorm", "post_attention_layernorm")
CHECKED_LENGTHS = (64, 2048)  # visible positions: long pools use other kernels
JOINED_SHARE = 8  # joined weights take at most 1 / JOINED_SHARE of a GPU's free memory


class FusedSteps:
    """The steps of one decoder layer: attention, then a gated network, each after a norm.

    ``ops`` are the operations between the products, those of `torch_layer` or `triton_layer`.
    """

    def __init__(self, layer: Any, ops: LayerOps, *, join: bool) -> None:
        self._ops = ops
        attention, network = layer.self_attn, layer.mlp
        norms = layer.input_layernorm, layer.post_attention_layernorm
        self._norms = [_norm(norm) for norm in norms]
        projections = [attention.q_proj, attention.k_proj, attention.v_proj]
        self._query_key_value = group_of(projections, join=join)
        self._output = group_of([attention.o_proj])
        self._scale: float = attention.scaling
        self._head_size: int = attention.head_dim
        self._key_heads = attention.k_proj.out_features // self._head_size
        self._groups = attention.q_proj.out_features // attention.k_proj.out_features
        head_norms = [getattr(attention, name, None) for name in ("q_norm", "k_norm")]
        self._head_norms = [_norm(norm) for norm in head_norms] if all(head_norms) else None
        self._gate_up = group_of([network.gate_proj, network.up_proj], join=join)
        self._down = group_of([network.down_proj])

    def __call__(
        self, hidden: Tensor, rotary: Sequence[Tensor], mask: Tensor, cache: PoolLayer
    ) -> Tensor:
        """The layer's output for hidden states, (1, rows, width)."""
        if rotary[0].shape[-1] != self._head_size:
            raise ValueError("rotary positions cover only part of a head")
        if not cache.is_initialized:
            empty = hidden.new_empty(1, self._key_heads, 0, self._head_size)
            cache.lazy_initialization(empty, empty)
        ops, (keys, values, slots) = self._ops, cache.storage
        shared = cache.shared(lambda: ops.prepare(rotary, mask[0, 0], self._groups))
        before = hidden[0]
        joined = self._query_key_value(ops.normalize(before, self._norms[0]))
        query = ops.rotate_and_store(joined, shared.rotary, slots, keys, values, self._head_norms)
        attended = ops.attend(query, keys, values, shared.mask, self._scale)
        summed, normed = ops.add_and_normalize(before, self._output(attended), self._norms[1])
        after: Tensor = summed + self._down(ops.gate(self._gate_up(normed)))
        return after[None]


class FusedLayer(nn.Module):
    """Mixed into the class of a decoder layer of a view: a pool's passes run the fused steps."""

    steps: FusedSteps
    checking: bool  # run both ways and compare

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        """The layer's output, by the fused steps where the cache is a pool's."""
        cache = _pool_layer(self, kwargs.get("past_key_values"))
        if cache is None:
            return super().forward(hidden_states, *args, **kwargs)
        rotary, mask = kwargs["position_embeddings"], kwargs["attention_mask"]
        if not self.checking:
            return self.steps(hidden_states, rotary, mask, cache)
        expected = super().forward(hidden_states, *args, **kwargs)
        written = [*cache.written]
        _compare(written, expected, self.steps(hidden_states, rotary, mask, cache), cache)
        return expected


def fuse(view: PreTrainedModel, *, check: bool = True) -> str | None:
    """Fuse the layers of a view; returns the reason where they stay as they are.

    ``check`` compares every fused layer with transformers' own on a few tokens.
    """
    layers, ops = list(_layers(view)), _ops(view)
    if ops is None:
        return "there are none for this device and dtype"
    if not layers:
        return f"the layers of {type(view).__name__} have another structure"
    if not takes_boolean_masks(view):
        return f"attention is {attention_of(view)}, not sdpa"
    if any(is_modified(module) for layer in layers for module in layer.modules()):
        return "a layer has hooks or a forward method of its own"
    kinds: list[Any] = [type(layer) for layer in layers]
    try:
        steps = [FusedSteps(layer, ops, join=False) for layer in layers]
        if _joining_pays(view, layers):
            steps = [FusedSteps(layer, ops, join=True) for layer in layers]
        for layer, kind, each in zip(layers, kinds, steps, strict=True):
            layer.steps, layer.checking = each, check
            layer.__class__ = _fused_class(kind)  # the view's own module
        if check:
            for visible in CHECKED_LENGTHS if ops is not TORCH_OPS else CHECKED_LENGTHS[:1]:
                _run(view, visible)
    except Exception as error:  # a layer may differ in ways its structure does not show
        for layer, kind in zip(layers, kinds, strict=True):
            layer.__class__ = kind
            vars(layer).pop("steps", None)
        return str(error)
    for layer in layers:
        layer.checking = False
    return None


def _joining_pays(view: PreTrainedModel, layers: Sequence[Any]) -> bool:
    """Whether to keep joined copies of weights: on a GPU, where each kernel counts, with room."""
    if not recordable(view):
        return False
    names = (("self_attn", ("q_proj", "k_proj", "v_proj")), ("mlp", ("gate_proj", "up_proj")))
    needed = sum(
        LinearGroup([getattr(getattr(layer, part), name) for name in members]).bytes
        for layer in layers
        for part, members in names
    )
    free = free_memory(view.device)
    return free is not None and needed <= free // JOINED_SHARE


def _ops(view: PreTrainedModel) -> LayerOps | None:
    """The operations between a layer's products on the model's device, if there are any."""
    if recordable(view):
        module = kernels("triton_layer", there=view.device.type == "cuda")
        return module.OPS if module else None
    kinds = {(weight.device.type, weight.dtype) for weight in view.parameters()}
    return TORCH_OPS if kinds == {("cpu", torch.float32)} else None


def _norm(module: Any) -> Norm:
    return Norm(module.weight, module.variance_epsilon)


@cache
def _fused_class(kind: Any) -> Any:
    return type(kind.__name__, (FusedLayer, kind), {})


def _layers(view: PreTrainedModel) -> Iterator[Any]:
    """The decoder layers, if all have the structure that `FusedSteps` computes."""
    config = view.config.get_text_config(decoder=True)
    found = [
        module
        for module in view.modules()
        if [name for name, _ in module.named_children()] == list(CHILDREN)
    ]
    usual = {"hidden_act": "silu", "is_encoder_decoder": False}
    if len(found) == config.num_hidden_layers and all(
        getattr(config, name, value) == value for name, value in usual.items()
    ):
        yield from found


def _pool_layer(layer: Any, cache: Any) -> PoolLayer | None:
    layers = getattr(cache, "layers", ())
    # Only the first is checked: a cache of transformers adds the others when they are written.
    if not layers or not isinstance(layers[0], PoolLayer):
        return None
    found: PoolLayer = layers[layer.self_attn.layer_idx]
    return found


@torch.inference_mode()
def _run(view: PreTrainedModel, visible: int) -> None:
    """Run a few tokens through every layer."""
    plan = Plan(visible)
    plan.visible = visible
    layers = view.config.get_text_config(decoder=True).num_hidden_layers
    tokens = torch.arange(5, 14, device=view.device)
    plan.slots = torch.arange(visible - 9, visible, device=view.device)
    seen = torch.zeros(9, visible, dtype=torch.bool, device=view.device)
    seen[:, -9:] = torch.ones(9, 9, dtype=torch.bool, device=view.device).tril()
    view.base_model(
        input_ids=tokens[None],
        position_ids=(tokens - 5)[None],
        attention_mask=seen[None, None],
        past_key_values=Cache(layers=[PoolLayer(plan) for _ in range(layers)]),
        use_cache=True,
    )


def _compare(written: Sequence[Tensor], expected: Tensor, output: Tensor, cache: PoolLayer) -> None:
    for one, other in [(output, expected), *zip(cache.written, written, strict=True)]:
        apart = ((one - other).abs().max() / other.abs().max().clamp(min=1e-6)).item()
        if not apart < TOLERANCE[other.element_size()]:
            raise ValueError(f"a fused layer is off by {apart:.2g} of the largest number")
