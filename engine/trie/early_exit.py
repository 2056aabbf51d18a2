"""A model's first layers as a draft model; weights and cache are shared."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from engine.drafting.exits import ExitLayers
from engine.errors import PlaygroundError
from engine.trie.backend import OutputRow
from engine.trie.cell import Cell
from engine.trie.plain import Plain
from engine.trie.pool import Pool


class EarlyExit:
    """A backend's cells, evaluated by the first layers only."""

    def __init__(
        self,
        backend: Pool | Plain,
        model: PreTrainedModel,
        layers: int,
        leaving: ExitLayers | None = None,
    ) -> None:
        self._backend = backend
        self._early = first_layers(model, layers, leaving)

    @property
    def used(self) -> int:
        """The whole model's: both use the same slots."""
        return self._backend.used

    def release_memory(self) -> None:
        """Nothing to release: the slots are the whole model's."""

    def top(self, context: Any) -> Cell:
        """The whole model's."""
        return self._backend.top(context)

    def states(self, cell: Cell) -> Tensor:
        """The whole model's."""
        return self._backend.states(cell)

    def evaluate(self, cells: Sequence[Cell]) -> dict[Cell, OutputRow]:
        """The output of the first layers after each cell."""
        return self._backend.evaluate(cells, early=self._early)


def first_layers(
    model: PreTrainedModel, layers: int, leaving: ExitLayers | None = None
) -> PreTrainedModel:
    """A view of the model without the later layers: its norm and head follow, or a trained exit.

    Only the modules that contain the list of layers are copied.
    """
    decoder = model.base_model
    total = model.config.get_text_config(decoder=True).num_hidden_layers
    lists = {
        name: child
        for name, child in decoder.named_children()
        if isinstance(child, nn.ModuleList) and len(child) == total
    }
    if model.config.is_encoder_decoder or len(lists) != 1:
        raise PlaygroundError(
            f"assistant_early_exit: {type(model).__name__} cannot exit after some of its layers"
        )
    if not 0 < layers < total:
        raise PlaygroundError(
            f"assistant_early_exit is {layers}; the model has {total} layers: allowed are 1 to"
            f" {total - 1}"
        )
    [(name, stack)] = lists.items()
    early_decoder = _with(decoder, name, nn.ModuleList(list(stack)[:layers]))
    early_decoder.config = copy.copy(early_decoder.config)
    early_decoder.config.num_hidden_layers = layers
    if leaving is not None:
        early_decoder = _with(early_decoder, "norm", leaving.norm)
    early: PreTrainedModel = _with(model, model.base_model_prefix, early_decoder)
    return early if leaving is None else _with(early, "lm_head", leaving.head)


def _with(module: Any, name: str, child: nn.Module) -> Any:
    """A copy of a module that shares its weights, with one child replaced."""
    twin = copy.copy(module)
    twin._modules = {**module._modules, name: child}
    return twin
