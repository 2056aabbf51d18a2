"""Linear layers on a CPU, with the product that is fastest here for so many rows.

A weight is read once for one row and for sixteen, but torch's product with a weight as it is stored
takes longer for a few rows than their number warrants. Packed for oneDNN it does not, and layers
that read one input are one product; for one row or for a whole prompt the stored weight is better.
Whether packing pays on this machine is measured when a model is loaded. A model that only drafts
can have weights of eight bits as well, which are read in half the time. Knows torch's layers and
kernels. Refuses to know models but for what they call layers that read one input.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
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
_SOME = 4  # every so many layers are timed: enough to be more than a cache holds
_TIMES = 3


class _Onto(Protocol):
    """A weight in a form of its own, multiplied with rows."""

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


class _Family:
    """The weight of layers that read one input; each takes its part of the product."""

    def __init__(
        self,
        members: Sequence[nn.Linear],
        form: Callable[[Tensor, Tensor | None], _Onto] = _OneDNN,
    ) -> None:
        weights: list[Tensor] = [member.weight for member in members]
        self.ends = torch.tensor([len(weight) for weight in weights]).cumsum(0).tolist()
        whole = torch.cat(weights) if len(weights) > 1 else weights[0]
        biases: list[Tensor] = [member.bias for member in members if member.bias is not None]
        self.product = form(whole.detach(), torch.cat(biases) if biases else None)
        self._last: tuple[Tensor, Tensor] | None = None  # the last input and its product

    def part(self, given: Tensor, place: int) -> Tensor:
        """One layer's part: the first one has it worked out, the last one lets go of it."""
        # Read and written as one, because other threads may be using the model.
        last = self._last
        product = last[1] if last and last[0] is given else self.product(given)
        self._last = None if place == len(self.ends) - 1 else (given, product)
        start = self.ends[place - 1] if place else 0
        return product[..., start : self.ends[place]]


class Packed(nn.Linear):
    """A linear layer that has its weight packed as well."""

    family: _Family
    place: int
    small: _Family | None = None

    def forward(self, given: Tensor) -> Tensor:
        """The product, by whichever way is faster for so many rows."""
        rows = given.numel() // given.shape[-1]
        if self.small and rows in FEW:
            return self.small.part(given, self.place)
        if rows in ROWS:
            return self.family.part(given, self.place)
        return linear(given, self.weight, self.bias)


def pack(model: nn.Module, like: nn.Module | None = None, *, rough: bool = False) -> bool:
    """Pack a model's linear layers if that pays here, or paid for a model ``like`` it; it takes the
    weights' memory once more. ``rough`` adds weights in eight bits: good enough for drafts."""
    if like is not None and not any(isinstance(layer, Packed) for layer in like.modules()):
        return False
    groups = list(_families(model))
    families = [(members, _Family(members)) for members in groups]
    if like is None and not _pays(families):
        return False
    small = [(members, _Family(members, _Eight)) for members in groups if rough]
    for members, family in families:
        for place, member in enumerate(members):
            member.__class__ = Packed
            member.family, member.place = family, place  # type: ignore[assignment]  # now it has
    if small and _pays(small, rows=FEW[0]):
        for members, family in small:
            for member in members:
                member.small = family  # type: ignore[assignment]  # likewise
    return True


def packable(model: nn.Module) -> bool:
    """Whether a model's layers can be packed here: float32 on a CPU that oneDNN knows."""
    kinds = {(weight.device.type, weight.dtype) for weight in model.parameters()}
    known: Any = torch.backends.mkldnn  # which carries no types
    return bool(known.is_available()) and kinds == {("cpu", torch.float32)}


def _families(model: nn.Module) -> Iterator[list[nn.Linear]]:
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
def _pays(families: Sequence[tuple[Sequence[nn.Linear], _Family]], rows: int = _TRIED) -> bool:
    """Whether the families' products of a few rows are faster: both ways in turn, the best of
    each."""
    some = families[::_SOME]
    given = [torch.ones(1, rows, members[0].in_features) for members, _ in some]

    def stored() -> None:
        for (members, _), each in zip(some, given, strict=True):
            for member in members:
                linear(each, member.weight, member.bias)

    def packed() -> None:
        for (_, family), each in zip(some, given, strict=True):
            family.product(each)

    times = [(_seconds(packed), _seconds(stored)) for _ in range(_TIMES)]
    ours, theirs = min(ours for ours, _ in times), min(theirs for _, theirs in times)
    log.info("such products take %.2f of the time of stored ones", ours / theirs)
    return ours < _WORTH * theirs


def _seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
