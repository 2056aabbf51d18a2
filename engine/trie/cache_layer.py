"""A transformers cache layer that writes at given slots of a pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import CacheLayerMixin

CAPACITY = 256  # slots of a new pool; it doubles when full, and halves again


class Plan:
    """Where the current forward pass writes, and how much of the pool it sees.

    State, because models pass no such arguments on to their cache.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self.visible = 0
        self.slots = torch.empty(0, dtype=torch.long)
        self.shared: Any = None  # what the first layer of a pass computed for all layers


class PoolLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]  # transformers has no types here
    """One layer's keys and values for every slot: (1, heads, slots, head size)."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # likewise
        self._plan = plan

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate on this layer's own device, which need not be the first layer's."""
        capacity = self._plan.capacity
        self.keys = key_states.new_zeros((*key_states.shape[:2], capacity, key_states.shape[3]))
        self.values = value_states.new_zeros(
            (*value_states.shape[:2], capacity, value_states.shape[3])
        )
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write new keys and values at their slots; return the part of the pool that is in use."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        slots = self._plan.slots.to(self.keys.device)
        self.keys.index_copy_(2, slots, key_states)
        self.values.index_copy_(2, slots, value_states)
        return self.keys[:, :, : self._plan.visible], self.values[:, :, : self._plan.visible]

    def shared(self, compute: Callable[[], Any]) -> Any:
        """What all layers of a pass use; the first layer computes it."""
        if self._plan.shared is None:
            self._plan.shared = compute()
        return self._plan.shared

    @property
    def storage(self) -> tuple[Tensor, Tensor, Tensor]:
        """Keys and values, (heads, slots, head size), and the slots this pass writes to."""
        assert self.keys is not None and self.values is not None
        return self.keys[0], self.values[0], self._plan.slots

    @property
    def written(self) -> list[Tensor]:
        """A copy of the keys and values this pass wrote."""
        keys, values, slots = self.storage
        return [keys[:, slots], values[:, slots]]

    def resize(self) -> None:
        """Follow the pool's capacity; stored keys and values keep their slots."""
        if self.is_initialized:
            assert self.keys is not None and self.values is not None
            self.keys = resized(self.keys, self._plan.capacity, dim=2)
            self.values = resized(self.values, self._plan.capacity, dim=2)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """The visible part from its start; of no effect, because the mask is given."""
        return self._plan.visible, 0

    def get_seq_length(self) -> int:
        """Of no effect, because positions are given."""
        return 0

    def get_max_length(self) -> int:
        """No maximum of its own."""
        return -1


def resized(tensor: Tensor, size: int, dim: int) -> Tensor:
    """A copy of ``size`` along ``dim``, filled with zeros or cut off."""
    shape = list(tensor.shape)
    kept = min(size, shape[dim])
    shape[dim] = size
    copy = tensor.new_zeros(shape)
    copy.narrow(dim, 0, kept).copy_(tensor.narrow(dim, 0, kept))
    return copy
