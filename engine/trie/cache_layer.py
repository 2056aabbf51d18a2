"""A transformers cache layer that writes where it is told to.

Knows keys, values and the positions of the tick under way. Refuses to know cells and masks.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import CacheLayerMixin

CAPACITY = 256  # what a new pool has room for; it doubles when full, and halves again


class Kernels(Enum):
    """How a decoder layer is run: as it is, in few kernels, or both ways to see that they agree."""

    REFERENCE = "as it is"
    FUSED = "in few kernels"
    VERIFY = "to compare"


class Plan:
    """Where the current tick writes, how much of the pool it sees, and how layers are run.

    State, because models pass no such arguments on to their cache.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self.visible = 0
        self.slots = torch.empty(0, dtype=torch.long)
        self.kernels = Kernels.REFERENCE
        self.ready: Any = None  # what the first layer of a tick has made for all


class PoolLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]  # transformers has no types here
    """One layer's keys and values for every position: (1, heads, positions, head size)."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # likewise
        self._plan = plan

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Make room on this layer's own device, which need not be the first layer's."""
        capacity = self._plan.capacity
        self.keys = key_states.new_zeros((*key_states.shape[:2], capacity, key_states.shape[3]))
        self.values = value_states.new_zeros(
            (*value_states.shape[:2], capacity, value_states.shape[3])
        )
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write the new cells at their positions; show the part of the pool that is in use."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        slots = self._plan.slots.to(self.keys.device)
        self.keys.index_copy_(2, slots, key_states)
        self.values.index_copy_(2, slots, value_states)
        return self.keys[:, :, : self._plan.visible], self.values[:, :, : self._plan.visible]

    @property
    def kernels(self) -> Kernels:
        """How the layer that this belongs to is run in this tick."""
        return self._plan.kernels

    def ready(self, make: Callable[[], Any]) -> Any:
        """What all layers of a tick need alike; the first one makes it."""
        if self._plan.ready is None:
            self._plan.ready = make()
        return self._plan.ready

    @property
    def room(self) -> tuple[Tensor, Tensor, Tensor]:
        """Keys and values, (heads, positions, head size), and where in them this tick writes."""
        assert self.keys is not None and self.values is not None
        return self.keys[0], self.values[0], self._plan.slots

    @property
    def written(self) -> list[Tensor]:
        """What this tick wrote, copied."""
        keys, values, slots = self.room
        return [keys[:, slots], values[:, slots]]

    def resize(self) -> None:
        """Follow the pool's capacity; what is stored stays where it is."""
        if self.is_initialized:
            assert self.keys is not None and self.values is not None
            self.keys = resized(self.keys, self._plan.capacity, dim=2)
            self.values = resized(self.values, self._plan.capacity, dim=2)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Of no effect, because the mask is given: the visible part, from its beginning."""
        return self._plan.visible, 0

    def get_seq_length(self) -> int:
        """Of no effect, because positions are given."""
        return 0

    def get_max_length(self) -> int:
        """No maximum of its own."""
        return -1


def resized(tensor: Tensor, size: int, dim: int) -> Tensor:
    """A copy with room for ``size`` along ``dim``; what has no place there is left out."""
    shape = list(tensor.shape)
    kept = min(size, shape[dim])
    shape[dim] = size
    copy = tensor.new_zeros(shape)
    copy.narrow(dim, 0, kept).copy_(tensor.narrow(dim, 0, kept))
    return copy
