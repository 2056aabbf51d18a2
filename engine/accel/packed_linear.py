"""Linear layers that read one input as one product, and on a CPU the fastest for so many rows.

A weight is read once for one row and for sixteen, but torch's product with a weight as it is stored
takes longer for a few rows than their number warrants. Packed for MKL or oneDNN it does not; for
one row or for a whole prompt the stored weight is better. Whether packing pays on this machine, and
for which of them, is measured when a model is loaded. A model that only drafts can have weights of
eight bits as well, which are read in half the time. Knows torch's layers and kernels. Refuses to
know models but for what they call layers that read one input.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

log = logging.getLogger(__name__)

# Layers of one block that read one input, in the order they are called.
SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
ROWS = range(4, 33)  # what packed weights are for: up to three rows the stored ones are as fast
FEW = range(1, 9)  # and weights in eight bits
_WORTH = 0.95  # of the stored weight's time: less gained than this is noise
_TRIED = 12  # rows
_SOME = 9  # every so many layers are timed: were it even, all would be of one kind
_TIMES = 3


class _Onto(Protocol):
    """A weight in a form of its own, multiplied with rows."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None: ...

    def __call__(self, given: Tensor) -> Tensor:
        """The product."""


class _OneDNN:
    """A weight packed for oneDNN."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, _TRIED)
        self._bias = bias

    def __call__(self, given: Tensor) -> Tensor:
        onto: Any = torch.ops.mkldnn._linear_pointwise  # operators carry no types
        product: Tensor = onto(given, self._packed, self._bias, "none", [], "")
        return product


class _Mkl:
    """A weight packed for MKL, which torch has on x86."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._packed = torch.ops.mkl._mkl_reorder_linear_weight(weight, _TRIED)
        self._weight, self._bias = weight, bias

    def __call__(self, given: Tensor) -> Tensor:
        onto: Any = torch.ops.mkl._mkl_linear
        rows = given.numel() // given.shape[-1]  # for other numbers than it is told torch unpacks
        product: Tensor = onto(given, self._packed, self._weight, self._bias, rows)
        return product


class _Eight:
    """A weight in eight bits, a scale for each of its rows; what it is multiplied with is rounded
    to bfloat16."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._scales = weight.abs().amax(1).clamp(min=1e-8) / 127
        self._numbers = (weight / self._scales[:, None]).round().to(torch.int8)
        self._ones = torch.ones(len(weight), dtype=torch.bfloat16)  # its own scales are too coarse
        self._bias = bias

    def __call__(self, given: Tensor) -> Tensor:
        rows = given.reshape(-1, given.shape[-1]).bfloat16()
        product = torch._weight_int8pack_mm(rows, self._numbers, self._ones) * self._scales
        product = product if self._bias is None else product + self._bias
        return product.view(*given.shape[:-1], -1)


class Family:
    """Layers that read one input: one weight and one bias, of which theirs are parts from now on.

    Each takes its part of the product.
    """

    def __init__(self, members: Sequence[nn.Linear]) -> None:
        if any(type(member) is not nn.Linear for member in members):
            raise ValueError("these are no plain linear layers")
        self.weight: Tensor = _joined([member.weight for member in members])
        self.bias: Tensor | None = _joined([member.bias for member in members])
        self.packed: _Onto | None = None
        self.small: _Onto | None = None  # in eight bits
        self._ends = torch.tensor([member.out_features for member in members]).cumsum(0).tolist()
        self._last: tuple[Tensor, Tensor] | None = None  # the last input and its product

    def __call__(self, given: Tensor) -> Tensor:
        """The whole product, by whichever way is fastest for so many rows."""
        rows = given.numel() // given.shape[-1]
        if self.small and rows in FEW:
            return self.small(given)
        if self.packed and rows in ROWS:
            return self.packed(given)
        return linear(given, self.weight, self.bias)

    def part(self, given: Tensor, place: int) -> Tensor:
        """One layer's part: the first one has it worked out, the last one lets go of it."""
        # Read and written as one, because other threads may be using the model.
        last = self._last
        product = last[1] if last and last[0] is given else self(given)
        self._last = None if place == len(self._ends) - 1 else (given, product)
        start = self._ends[place - 1] if place else 0
        return product[..., start : self._ends[place]]


def _joined(parts: Sequence[Any]) -> Any:
    """One tensor of which those given are parts from now on; None if there are none."""
    if all(part is None for part in parts):
        return None
    if len(parts) == 1:  # may be somebody else's too: an output matrix is often the embedding
        return parts[0].data
    whole, start = torch.cat([part.data for part in parts]), 0
    for part in parts:
        part.data = whole[start : start + len(part)]
        start += len(part)
    return whole


class Packed(nn.Linear):
    """A linear layer that has its weight packed as well."""

    family: Family
    place: int

    def forward(self, given: Tensor) -> Tensor:
        """The layer's part of its family's product."""
        return self.family.part(given, self.place)


def family_of(members: Sequence[nn.Linear]) -> Family:
    """Layers that read one input as one: packed, if they are."""
    first = members[0]
    if isinstance(first, Packed) and all(
        isinstance(member, Packed) and member.family is first.family for member in members
    ):
        return first.family
    return Family(members)


def pack(model: nn.Module, like: nn.Module | None = None, *, rough: bool = False) -> bool:
    """Pack a model's linear layers if that pays here, or paid for a model ``like`` it; it takes the
    weights' memory once more. ``rough`` adds weights in eight bits: good enough for drafts."""
    groups = list(_groups(model))
    families = [Family(members) for members in groups]
    form = _form_in(like) if like is not None else _fastest(families, packings(), _TRIED)
    if form is None:
        return False
    packed = [form(family.weight, family.bias) for family in families]
    rough = rough and _fastest(families, [_Eight], FEW[0]) is not None
    small = [_Eight(family.weight, family.bias) for family in families if rough]
    for members, family, own, rougher in zip_longest(groups, families, packed, small):
        family.packed, family.small = own, rougher
        for place, member in enumerate(members):
            member.__class__ = Packed
            member.family, member.place = family, place
    return True


def packings() -> list[type[_Onto]]:
    """What weights can be packed for here."""
    known: Any = torch.backends.mkl  # which carries no types
    return [_Mkl, _OneDNN] if known.is_available() else [_OneDNN]


def _form_in(model: nn.Module) -> type[_Onto] | None:
    """What the weights of a model are packed for, if they are."""
    forms = (layer.family.packed for layer in model.modules() if isinstance(layer, Packed))
    return next(map(type, filter(None, forms)), None)


def packable(model: nn.Module) -> bool:
    """Whether a model's layers can be packed here: float32 on a CPU that oneDNN knows."""
    kinds = {(weight.device.type, weight.dtype) for weight in model.parameters()}
    known: Any = torch.backends.mkldnn  # which carries no types
    return bool(known.is_available()) and kinds == {("cpu", torch.float32)}


def _groups(model: nn.Module) -> Iterator[list[nn.Linear]]:
    """The plain linear layers, those that read one input together."""
    joined: set[nn.Module] = set()
    for block in model.modules():
        for names in SIBLINGS:
            found = [getattr(block, name, None) for name in names]
            members = [each for each in found if type(each) is nn.Linear]
            if len(members) == len(names) and _alike(members):
                joined.update(members)
                yield members
    for layer in model.modules():
        if type(layer) is nn.Linear and layer not in joined:
            yield [layer]


def _alike(members: Sequence[nn.Linear]) -> bool:
    return len({(member.in_features, member.bias is None) for member in members}) == 1


@torch.inference_mode()
def _fastest(
    families: Sequence[Family], forms: Sequence[type[_Onto]], rows: int
) -> type[_Onto] | None:
    """The form of the families' weights in which products of so many rows are fastest, if they are
    faster than stored: all ways in turn, the best of each."""
    some = families[::_SOME]
    given = [torch.ones(1, rows, family.weight.shape[1]) for family in some]
    ways: dict[type[_Onto] | None, list[Callable[[Tensor], Tensor]]] = {
        None: [partial(linear, weight=family.weight, bias=family.bias) for family in some]
    }
    for form in forms:
        ways[form] = [form(family.weight, family.bias) for family in some]
    best = dict.fromkeys(ways, math.inf)
    for _ in range(_TIMES):
        for way, products in ways.items():
            best[way] = min(best[way], _seconds(products, given))
    stored = best.pop(None)
    fastest = min(best, key=lambda form: best[form])
    log.info("%s take %.2f of the time of stored weights", fastest, best[fastest] / stored)
    return fastest if best[fastest] < _WORTH * stored else None


def _seconds(products: Sequence[Callable[[Tensor], Tensor]], given: Sequence[Tensor]) -> float:
    start = time.perf_counter()
    for product, rows in zip(products, given, strict=True):
        product(rows)
    return time.perf_counter() - start
