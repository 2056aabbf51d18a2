"""A view of a model: a copy of its module tree that shares its weights.

The engine never changes a model that a caller handed in. What it has to change (fused layers,
packed weights, the attention function, the hooks that transformers installs to return hidden
states) it changes in a view.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

# Every STRIDE-th number is compared. A prime, so that every row and column of a matrix is covered.
STRIDE = 509


def view_of(model: PreTrainedModel) -> PreTrainedModel:
    """Copy every module and config of a model; parameters and buffers stay the model's own."""
    modules: dict[int, Any] = {}
    configs: dict[int, Any] = {}  # the memo of deepcopy: modules keep sharing their config

    def copied(module: nn.Module) -> Any:
        if id(module) not in modules:
            # `copy.copy` would call a class's own `__setstate__`, which may rebuild things.
            twin = modules[id(module)] = module.__class__.__new__(module.__class__)
            state = dict(vars(module))
            # private: nn.Module keeps these dictionaries. Sharing the first two lets the view see a
            # parameter that is replaced; a copy of the others keeps new hooks out of the model.
            for name, value in state.items():
                if isinstance(value, dict) and name not in ("_parameters", "_buffers"):
                    state[name] = copy.copy(value)
            state["_modules"] = {
                name: child and copied(child) for name, child in module._modules.items()
            }
            if "config" in state:
                state["config"] = copy.deepcopy(state["config"], configs)
            vars(twin).update(state)
        return modules[id(module)]

    view: PreTrainedModel = copied(model)
    return view


def is_modified(module: nn.Module) -> bool:
    """Whether hooks or a `forward` of its own change what a module computes."""
    # private: transformers' hooks that return hidden states are known by their module. If it moves,
    # layers with such hooks are no longer fused, and `Backends.status` says so.
    hooks = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
    foreign = [hook for hook in hooks if hook.__module__ != "transformers.utils.output_capturing"]
    return bool(foreign) or "forward" in vars(module)


def attention_of(model: PreTrainedModel) -> str:
    """The name of a model's attention function."""
    # private: transformers has `set_attn_implementation`, and no public getter. If it moves, read
    # the name where that method writes it.
    return str(model.config._attn_implementation)


def takes_boolean_masks(model: PreTrainedModel) -> bool:
    """Whether a model's attention takes boolean masks, as torch's own does; eager ones add them."""
    return attention_of(model).endswith("sdpa")


class Fingerprint:
    """Tells whether a model has changed: its modules, hooks, weights, and some of their numbers.

    A write through ``weight.data`` leaves no mark on a tensor, so numbers are compared as well.
    Checked before every comparison, so everything that can be prepared is.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._attention = attention_of(model)
        # Weak references: a model may be forgotten although its fingerprint is kept.
        self._modules = [(ref(module), _state(module)) for module in model.modules()]
        self._slices = _slices(model)
        self._numbers = [torch.cat(slices) for slices in self._slices]

    def matches(self, model: PreTrainedModel) -> bool:
        """Whether the model is as it was. The first module is the model itself."""
        if self._modules[0][0]() is not model or self._attention != attention_of(model):
            return False
        for known, state in self._modules:
            module = known()
            if module is None or _state(module) != state:
                return False
        return all(
            torch.equal(torch.cat(slices), numbers)
            for slices, numbers in zip(self._slices, self._numbers, strict=True)
        )


def _state(module: nn.Module) -> tuple[Any, ...]:
    """What can be compared of one module without reading any numbers."""
    # private: nn.Module keeps these dictionaries; its public methods walk the whole tree, which
    # takes longer than a forward pass on a GPU.
    found = (*module._parameters.values(), *module._buffers.values())
    tensors = [tensor for tensor in found if tensor is not None]
    return (
        type(module),
        *map(id, module._modules.values()),
        *module._forward_pre_hooks,
        *module._forward_hooks,
        # Tensors made in inference mode count no versions.
        *((id(t), t.data_ptr(), 0 if t.is_inference() else t._version) for t in tensors),
    )


def _slices(model: nn.Module) -> list[list[Tensor]]:
    """Every STRIDE-th number of each weight, as views; one list for each device and dtype."""
    found: dict[tuple[torch.device, torch.dtype], list[Tensor]] = defaultdict(list)
    for tensor in (*model.parameters(), *model.buffers()):
        if not tensor.is_meta:
            # A view also of a transposed weight, whose memory is in another order.
            transposed = tensor.ndim > 1 and not tensor.is_contiguous()
            dense = tensor.detach().mT if transposed else tensor.detach()
            found[tensor.device, tensor.dtype].append(dense.reshape(-1)[::STRIDE])
    return list(found.values())
