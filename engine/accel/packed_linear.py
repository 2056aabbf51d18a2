"""Linear layers that read one input as one product, with weights packed for a few rows on a CPU.

torch's product with a stored weight takes longer for 4 to 32 rows than their number warrants.
Packed for MKL or oneDNN it does not; for fewer rows, or for a whole prompt, the stored weight is as
fast. Whether packing pays on this machine is measured once per model. A model that only drafts can
have 8-bit weights as well, which are read in half the time.

A packed weight is a second copy. Only the engine's own modules are changed: a view of a model, or
draft heads and draft models that come with the playground.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from engine.accel import enabled
from engine.models.memory import free_memory
from engine.models.view import is_modified

log = logging.getLogger(__name__)

# Layers of one block that read one input, in the order they are called.
SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
PACKED_ROWS = range(4, 33)  # below, stored weights are as fast; above, they are faster
INT8_ROWS = range(1, 9)
ROOM = 2**30  # bytes that packed weights may take where free memory is unknown
_GAIN = 0.95  # of the stored weight's time: a smaller gain is noise
_TIMED_ROWS = 12
_TIMED_LAYERS = 9  # every ninth is timed: an even number could select layers of one kind only
_REPEATS = 3


class PackedWeight(Protocol):
    """A weight in another layout, multiplied with rows."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None: ...

    def __call__(self, rows: Tensor) -> Tensor:
        """The product."""


class OneDnnWeight:
    """A weight packed for oneDNN."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        # private: torch.ops.mkldnn, the operators that torch.compile emits for a CPU. Without them
        # `packed_layouts` must leave oneDNN out: weights then stay as they are stored.
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, _TIMED_ROWS)
        self._bias = bias

    def __call__(self, rows: Tensor) -> Tensor:
        """The product."""
        operator: Any = torch.ops.mkldnn._linear_pointwise  # operators carry no types
        product: Tensor = operator(rows, self._packed, self._bias, "none", [], "")
        return product


class MklWeight:
    """A weight packed for MKL, which torch has on x86."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        # private: torch.ops.mkl, as above.
        self._packed = torch.ops.mkl._mkl_reorder_linear_weight(weight, _TIMED_ROWS)
        # The operator reads only the shape of the stored weight when it is given the real number of
        # rows. A single expanded number has that shape: the weight itself would be a third copy.
        self._shape, self._bias = weight.new_zeros(1).expand(weight.shape), bias

    def __call__(self, rows: Tensor) -> Tensor:
        """The product."""
        operator: Any = torch.ops.mkl._mkl_linear
        count = rows.numel() // rows.shape[-1]
        product: Tensor = operator(rows, self._packed, self._shape, self._bias, count)
        return product


class Int8Weight:
    """A weight in 8 bits with a scale for each of its rows; inputs are rounded to bfloat16."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._scales = weight.abs().amax(1).clamp(min=1e-8) / 127
        self._numbers = (weight / self._scales[:, None]).round().to(torch.int8)
        self._ones = torch.ones(len(weight), dtype=torch.bfloat16)  # its own scales are too coarse
        self._bias = bias

    def __call__(self, rows: Tensor) -> Tensor:
        """The product."""
        flat = rows.reshape(-1, rows.shape[-1]).bfloat16()
        # private: torch's 8-bit product, which its own quantization uses. Without it drafts keep
        # float32 weights: drop this class from `pack`.
        product = torch._weight_int8pack_mm(flat, self._numbers, self._ones) * self._scales
        product = product if self._bias is None else product + self._bias
        return product.view(*rows.shape[:-1], -1)


class LinearGroup:
    """Linear layers that read one input, as one product.

    The layers keep their weights, and a change of these takes effect wherever the group has no
    copy: ``join`` keeps one of all weights in one matrix, `pack` one in another layout.
    """

    def __init__(self, members: Sequence[nn.Linear], *, join: bool = False) -> None:
        if not all(map(is_plain, members)):
            raise ValueError("its projections are not plain linear layers")
        self._members = members
        self._joined = self.joined() if join else None
        self.packed: PackedWeight | None = None
        self.int8: PackedWeight | None = None
        self._ends = torch.tensor([member.out_features for member in members]).cumsum(0).tolist()
        self._last: tuple[Tensor, Tensor] | None = None  # the last input and its product

    @property
    def bytes(self) -> int:
        """The size of the weights."""
        return sum(member.weight.numel() * member.weight.element_size() for member in self._members)

    def joined(self) -> tuple[Tensor, Tensor | None]:
        """All weights as one matrix, and all biases, if there are any; a single one's own."""
        weights = [member.weight.detach() for member in self._members]
        biases = [member.bias.detach() for member in self._members if member.bias is not None]
        if len(weights) == 1:
            return weights[0], biases[0] if biases else None
        return torch.cat(weights), torch.cat(biases) if biases else None

    def pack(self, layout: type[PackedWeight] | None, *, int8: bool = False) -> None:
        """Keep a packed copy of the weights, and one in 8 bits."""
        weight, bias = self.joined()
        self.packed = layout(weight, bias) if layout else None
        self.int8 = Int8Weight(weight, bias) if int8 else None

    def __call__(self, given: Tensor) -> Tensor:
        """The whole product, computed the fastest way for this number of rows."""
        rows = given.numel() // given.shape[-1]
        if self.int8 and rows in INT8_ROWS:
            return self.int8(given)
        if self.packed and rows in PACKED_ROWS:
            return self.packed(given)
        if self._joined is not None:
            return linear(given, *self._joined)
        products = [linear(given, member.weight, member.bias) for member in self._members]
        return products[0] if len(products) == 1 else torch.cat(products, -1)

    def part(self, given: Tensor, index: int) -> Tensor:
        """One layer's part. The first call computes the product, the last one drops it."""
        # Read and written as one tuple, because other threads may be using the model.
        last = self._last
        product = last[1] if last and last[0] is given else self(given)
        self._last = None if index == len(self._ends) - 1 else (given, product)
        start = self._ends[index - 1] if index else 0
        return product[..., start : self._ends[index]]


class PackedLinear(nn.Linear):
    """A linear layer of a packed group."""

    group: LinearGroup
    index: int

    def forward(self, given: Tensor) -> Tensor:
        """The layer's part of the group's product."""
        return self.group.part(given, self.index)


def is_plain(layer: nn.Module) -> bool:
    """Whether a layer computes what a linear layer does, and nothing else."""
    return type(layer) in (nn.Linear, PackedLinear) and not is_modified(layer)


def group_of(members: Sequence[nn.Linear], *, join: bool = False) -> LinearGroup:
    """The packed group of some layers, or a new group that is not packed."""
    first = members[0]
    if isinstance(first, PackedLinear) and all(
        isinstance(member, PackedLinear) and member.group is first.group for member in members
    ):
        return first.group
    return LinearGroup(members, join=join)


def pack(module: nn.Module, layout: type[PackedWeight], *, int8: bool = False) -> None:
    """Pack the linear layers of one of the engine's own modules.

    ``int8`` adds 8-bit weights if they pay: good enough for drafts.
    """
    groups = [(members, LinearGroup(members)) for members in _groups(module)]
    every = [group for _, group in groups]
    int8 = int8 and _fastest(every, [Int8Weight], INT8_ROWS[0]) is not None
    for members, group in groups:
        group.pack(layout, int8=int8)
        for index, member in enumerate(members):
            _make_packed(member, group, index)


def _make_packed(member: Any, group: LinearGroup, index: int) -> None:
    member.__class__ = PackedLinear
    member.group, member.index = group, index


_layouts: WeakKeyDictionary[nn.Module, tuple[type[PackedWeight] | None, str | None]] = (
    WeakKeyDictionary()
)


def layout_for(model: nn.Module) -> tuple[type[PackedWeight] | None, str | None]:
    """The layout to pack a model's weights in, or None and the reason; measured once per model."""
    if not enabled():
        return None, "accelerations are switched off"
    if model not in _layouts:
        _layouts[model] = _measured_layout(model)
    return _layouts[model]


def _measured_layout(model: nn.Module) -> tuple[type[PackedWeight] | None, str | None]:
    if not packable(model):
        return None, "packing is for float32 models on a CPU with oneDNN"
    groups = [LinearGroup(members) for members in _groups(model)]
    free = free_memory(torch.device("cpu"))
    room = ROOM if free is None else free // 2
    if sum(group.bytes for group in groups) > room:
        return None, "there is no room for a second copy of the weights"
    layout = _fastest(groups, packed_layouts(), _TIMED_ROWS)
    return layout, None if layout else "packed weights are not faster on this machine"


def packed_layouts() -> list[type[PackedWeight]]:
    """The layouts that torch has on this machine."""
    mkl: Any = torch.backends.mkl  # which carries no types
    return [MklWeight, OneDnnWeight] if mkl.is_available() else [OneDnnWeight]


def packable(model: nn.Module) -> bool:
    """Whether a model's layers can be packed: float32 on a CPU that has oneDNN."""
    kinds = {(weight.device.type, weight.dtype) for weight in model.parameters()}
    mkldnn: Any = torch.backends.mkldnn  # which carries no types
    return bool(mkldnn.is_available()) and kinds == {("cpu", torch.float32)}


def _groups(model: nn.Module) -> Iterator[list[nn.Linear]]:
    """The plain linear layers that are not packed, siblings together."""

    def is_free(layer: Any) -> bool:
        return type(layer) is nn.Linear and is_plain(layer)

    grouped: set[nn.Module] = set()
    for block in model.modules():
        for names in SIBLINGS:
            members: list[Any] = [getattr(block, name, None) for name in names]
            if all(map(is_free, members)) and _alike(members):
                grouped.update(members)
                yield members
    for layer in model.modules():
        if layer not in grouped and is_free(layer):
            yield [layer]  # type: ignore[list-item]  # is_free says that it is linear


def _alike(members: Sequence[nn.Linear]) -> bool:
    return len({(member.in_features, member.bias is None) for member in members}) == 1


@torch.inference_mode()
def _fastest(
    groups: Sequence[LinearGroup], layouts: Sequence[type[PackedWeight]], rows: int
) -> type[PackedWeight] | None:
    """The layout in which products of ``rows`` rows are fastest, if faster than stored weights.

    Some of the groups are timed, all layouts in turn, the best of a few times each.
    """
    some = [group.joined() for group in groups[::_TIMED_LAYERS]]
    if not some:
        return None
    given = [torch.ones(1, rows, weight.shape[1]) for weight, _ in some]
    ways: dict[type[PackedWeight] | None, list[Callable[[Tensor], Tensor]]] = {
        None: [partial(linear, weight=weight, bias=bias) for weight, bias in some]
    }
    for layout in layouts:
        ways[layout] = [layout(weight, bias) for weight, bias in some]
    best = dict.fromkeys(ways, math.inf)
    for _ in range(_REPEATS):
        for way, products in ways.items():
            best[way] = min(best[way], _seconds(products, given))
    stored = best.pop(None)
    fastest = min(best, key=lambda layout: best[layout])
    log.info("%s takes %.2f of the time of stored weights", fastest, best[fastest] / stored)
    return fastest if best[fastest] < _GAIN * stored else None


def _seconds(products: Sequence[Callable[[Tensor], Tensor]], given: Sequence[Tensor]) -> float:
    start = time.perf_counter()
    for product, rows in zip(products, given, strict=True):
        product(rows)
    return time.perf_counter() - start
