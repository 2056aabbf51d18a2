"""The trie backend: each cell has a slot in a pooled cache, and its mask is its ancestors.

One forward pass evaluates any set of cells, wherever they are in the trie.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from engine.models.view import takes_boolean_masks
from engine.trie.backend import NodeOutput, OutputRow
from engine.trie.cache_layer import CAPACITY, Plan, PoolLayer, resized
from engine.trie.cell import Cell, ancestor_masks, top, with_missing_ancestors
from engine.trie.slots import PADDING, Slots

CHUNK = 512  # most cells in one forward pass: bounds the memory a long prompt needs
BLOCK = 64  # the visible part of the pool grows by this many slots

# Logits, hidden states and the vocabulary's size in; the outputs of a pass out.
ReadLogits = Callable[[Tensor, Tensor | None, int | None], NodeOutput]


class Pool:
    """Slots, ancestor masks and forward passes of one model."""

    def __init__(
        self,
        model: PreTrainedModel,
        positions: int,
        vocabulary: int | None = None,
        *,
        capacity: int = CAPACITY,
        read: ReadLogits = NodeOutput.of,
    ) -> None:
        self._model = model
        self._vocabulary = vocabulary
        self._read = read
        self._slots = Slots(capacity, positions)
        self._plan = Plan(capacity)
        layers = model.config.get_text_config(decoder=True).num_hidden_layers
        self._layers = [PoolLayer(self._plan) for _ in range(layers)]
        self._cache = Cache(layers=[*self._layers])
        self._top = top(released=self._slots.released)
        # (slot, slot): what the cell at a slot attends to, itself and its ancestors. The padding
        # slot attends to nothing.
        self._ancestors = torch.zeros(capacity, capacity, dtype=torch.bool, device=model.device)
        # (slot, width): the last hidden state of the cell at a slot; made when the width is known.
        self._states = torch.empty(0)
        self._selects_logits = "logits_to_keep" in inspect.signature(model.forward).parameters
        self._bool_mask = takes_boolean_masks(model)

    @property
    def used(self) -> int:
        """Slots of living cells."""
        return self._slots.used

    def top(self, context: Any) -> Cell:
        """The one top of all prompts, so that prompts share common prefixes."""
        return self._top

    def attends_to(self, cell: Cell) -> set[int]:
        """The slots in an evaluated cell's row of the mask."""
        return set(self._ancestors[cell.slot].nonzero().flatten().tolist())

    def states(self, cell: Cell) -> Tensor:
        """The last hidden state at every token down to an evaluated cell: (tokens, width)."""
        slots = [ancestor.slot for ancestor in cell.ancestry()][::-1]
        return self._states[torch.tensor(slots, device=self._states.device)]

    def evaluate(
        self, cells: Sequence[Cell], early: PreTrainedModel | None = None
    ) -> dict[Cell, OutputRow]:
        """The model's output after each cell; missing ancestors are evaluated first, in chunks.

        ``early`` is the model's own first layers: they read and write the same slots, and cells
        they evaluate must still be evaluated by the whole model.
        """
        queue = self._queue(cells, early)
        wanted = set(cells)
        self._allocate([cell for cell in queue if cell.slot is None])
        output_rows: dict[Cell, OutputRow] = {}
        for chunk in (queue[at : at + CHUNK] for at in range(0, len(queue), CHUNK)):
            keep = [at for at, cell in enumerate(chunk) if cell in wanted]
            output = self._pass(chunk, keep, early)
            output_rows |= {chunk[at]: OutputRow(output, row) for row, at in enumerate(keep)}
        return output_rows

    def _queue(self, cells: Sequence[Cell], early: PreTrainedModel | None) -> list[Cell]:
        """The cells to forward, parents first. A cell whose output was dropped is forwarded again,
        into the slot it has."""
        if early is None:
            return with_missing_ancestors(cells, lambda cell: cell.complete)
        return with_missing_ancestors(cells, lambda cell: cell.slot is not None)

    def _allocate(self, cells: Sequence[Cell]) -> None:
        """Give every new cell a slot and its row of ancestors; parents come first."""
        if not cells:
            return
        above, inside = self._ancestor_rows(cells)
        self._assign(cells)
        slots = self._on_device([cell.slot for cell in cells])
        rows = self._ancestors[self._on_device(above)]
        rows[:, slots] = inside.bool().to(rows.device)
        self._ancestors[slots] = rows

    def _ancestor_rows(self, cells: Sequence[Cell]) -> tuple[list[int], Tensor]:
        """What the mask rows of new cells are made of: the slot of an ancestor whose row they start
        from, and which of the cells are added, (cells, cells)."""
        above, inside = ancestor_rows(cells)
        return [cell.slot or PADDING for cell in above], inside

    def _pass(
        self, cells: Sequence[Cell], keep: Sequence[int], early: PreTrainedModel | None
    ) -> NodeOutput:
        """One forward pass over cells that have slots; reads the logits of those to keep."""
        rows = [(cell.token, cell.depth, cell.slot) for cell in cells]
        tokens, depths, slots = self._on_device(rows).T.contiguous()
        self._plan.slots, self._plan.visible = slots, self._visible()
        for cell in cells:
            cell.complete |= early is None
        return self._forward(tokens, depths, slots, self._on_device(keep), early)

    @torch.inference_mode()
    def _forward(
        self,
        tokens: Tensor,
        depths: Tensor,
        slots: Tensor,
        kept: Tensor | None,
        early: PreTrainedModel | None,
    ) -> NodeOutput:
        """The part of a pass that stays on the device: (queries,) tensors in, the outputs of those
        kept, or of all, out."""
        mask = self._ancestors[slots, : self._plan.visible]  # (queries, visible)
        mask[:, PADDING] |= slots == PADDING  # padding must see something, or its softmax is 0/0
        self._plan.shared = None
        selected = kept is not None and self._selects_logits
        selection = {"logits_to_keep": kept} if selected else {}
        output = (early or self._model)(
            input_ids=tokens[None],
            position_ids=depths[None],
            attention_mask=self._as_attention_mask(mask),
            past_key_values=self._cache,
            use_cache=True,
            output_hidden_states=early is None,
            **selection,
        )
        logits = output.logits[0]
        if kept is not None and not selected:
            logits = logits[kept]
        hidden = None
        if early is None:
            # (queries, 1 + layers, width); layers may live on several devices
            hidden = torch.stack([state[0].to(logits.device) for state in output.hidden_states], 1)
            self._keep_states(slots, hidden[:, -1])
            hidden = hidden if kept is None else hidden[kept]
        return self._read(logits, hidden, self._vocabulary)

    def _keep_states(self, slots: Tensor, states: Tensor) -> None:
        if len(self._states) != self._plan.capacity:
            self._states = self._states.to(states).reshape(-1, states.shape[-1])
            self._states = resized(self._states, self._plan.capacity, dim=0)
        self._states.index_copy_(0, slots, states)

    def _as_attention_mask(self, mask: Tensor) -> Tensor:
        """The 4-D form, which models hand to their attention untouched; eager attention adds it."""
        if not self._bool_mask:
            floor = torch.finfo(self._model.dtype).min
            mask = torch.zeros_like(mask, dtype=self._model.dtype).masked_fill(~mask, floor)
        return mask[None, None]

    def _on_device(self, numbers: Sequence[Any]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.long, device=self._ancestors.device)

    def _visible(self) -> int:
        """How much of the pool a pass attends to: up to the highest slot taken, in blocks."""
        return min(-(-self._slots.reach // BLOCK) * BLOCK, self._plan.capacity)

    def _assign(self, cells: Sequence[Cell]) -> None:
        """Give new cells their slots."""
        for cell, slot in zip(cells, self._take(len(cells)), strict=True):
            cell.slot = slot

    def _take(self, count: int) -> list[int]:
        """Free slots; the pool grows if there are too few."""
        if capacity := self._slots.missing(count):
            self._resize(capacity)
        return self._slots.take(count)

    def release_memory(self) -> None:
        """Shrink the pool, at the end of a comparison, to what the last comparisons needed."""
        if capacity := self._slots.spare():
            self._resize(capacity)

    def _resize(self, capacity: int) -> None:
        self._plan.capacity = capacity
        self._slots.resize(capacity)
        for layer in self._layers:
            layer.resize()
        rows = resized(self._ancestors, capacity, dim=0)
        self._ancestors = resized(rows, capacity, dim=1)


def ancestor_rows(cells: Sequence[Cell]) -> tuple[list[Cell], Tensor]:
    """For each cell, parents before children, the nearest ancestor that is not among them, and
    which of them are its ancestors or itself, (cells, cells)."""
    above, inside = ancestor_masks(cells)
    return above, torch.frombuffer(inside, dtype=torch.uint8).view(len(cells), -1)
