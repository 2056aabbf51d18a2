"""The pool of a model with all accelerations that apply to it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedModel

from engine.accel.fused_layers import fuse
from engine.accel.graphs import ROWS, Graphs, bucket, recordable
from engine.accel.grouped_attention import group
from engine.accel.kernels import kernels
from engine.accel.packed_linear import layout_for, pack
from engine.trie.backend import NodeOutput, OutputRow, PendingCells
from engine.trie.cell import Cell
from engine.trie.pool import Pool
from engine.trie.slots import PADDING

log = logging.getLogger(__name__)

BLOCK = 512  # the visible part of a recorded pool doubles from this many slots: few shapes
CAPACITY = 1024  # slots of a new recorded pool: another size loses the recordings


@dataclass
class Accelerations:
    """The accelerations of one view, and those that could not be used, with the reason."""

    used: list[str] = field(default_factory=list)
    fallbacks: list[str] = field(default_factory=list)

    def add(self, name: str, reason: str | None) -> None:
        """Note an acceleration as used, or the reason why it is not."""
        if reason is None:
            self.used.append(name)
        else:
            self.fallbacks.append(f"no {name}: {reason}")


def accelerate(
    view: PreTrainedModel, model: PreTrainedModel, *, packed: bool, check: bool
) -> Accelerations:
    """Apply what makes the view of a model faster: grouped attention, packed weights, fused layers.

    ``packed`` allows a second copy of the weights on a CPU; ``check`` compares fused layers with
    the model's own.
    """
    found = Accelerations()
    if view.device.type == "cpu" and group(view):
        found.used.append("grouped attention")
    if packed and view.device.type == "cpu":
        layout, reason = layout_for(model)
        if layout is not None:
            pack(view, layout)
        found.add("packed weights", reason)
    reason = fuse(view, check=check)
    if reason is not None:
        _warn_once(f"{type(view).__name__} runs without fused layers: {reason}")
    found.add("fused layers", reason)
    return found


@cache
def _warn_once(message: str) -> None:
    log.warning(message)


def accelerated_pool(
    view: PreTrainedModel, positions: int, vocabulary: int | None, found: Accelerations
) -> Pool:
    """A pool of a view that was accelerated; on a GPU its passes are recorded."""
    if not recordable(view):
        return Pool(view, positions, vocabulary)
    fused = "fused layers" in found.used
    module = kernels("triton_statistics", there=fused and view.device.type == "cuda")
    read = module.read if module else NodeOutput.of
    return GraphPool(view, positions, vocabulary, capacity=CAPACITY, read=read)


class GraphPool(Pool):
    """A pool whose passes over a few cells are recorded as CUDA graphs, in buckets of shapes."""

    def __init__(self, model: PreTrainedModel, *args: Any, **kwargs: Any) -> None:
        self.graphs = Graphs[NodeOutput](model.device)
        super().__init__(model, *args, **kwargs)

    def evaluate(
        self, cells: Sequence[Cell], early: PreTrainedModel | None = None
    ) -> dict[Cell, OutputRow]:
        """The model's output after each cell; a few cells are evaluated as one recorded pass."""
        queue = self._queue(cells, early)
        if len(queue) > ROWS:
            return super().evaluate(cells, early)
        new = [cell for cell in queue if cell.slot is None]
        if len(new) == len(queue):  # their mask rows are written within the pass
            above, inside = self._ancestor_rows(queue)
            self._assign(new)
        else:
            self._allocate(new)
            above = [cell.slot or PADDING for cell in queue]
            inside = torch.eye(len(queue), dtype=torch.uint8)
        pairs = zip(queue, above, strict=True)
        rows = [(cell.token, cell.depth, cell.slot, parent) for cell, parent in pairs]
        missing = bucket(len(queue)) - len(queue)
        rows += [(0, 0, PADDING, PADDING)] * missing
        table = torch.cat([torch.tensor(rows).T, pad(inside, (0, missing, 0, missing))])
        try:
            output = self._play(table, early)
        except BaseException:
            # As if they had never been requested.
            self._slots.release([cell.slot for cell in new if cell.slot is not None])
            for cell in new:
                cell.slot = None
            raise
        for cell in queue:
            cell.complete |= early is None
        wanted = set(cells)
        keep = [at for at, cell in enumerate(queue) if cell in wanted]
        # Copied: the next pass overwrites a recording's result. If all are wanted, padding is
        # copied along, so that the shapes of what is computed from them repeat.
        every = len(keep) == len(queue)
        own = output.copy() if every else output.rows(self._on_device(keep))
        return {queue[at]: OutputRow(own, row) for row, at in enumerate(keep)}

    def reserve_cells(self, count: int) -> PendingCells:
        """Reserve slots for cells whose tokens the host does not know yet."""
        return PendingCells(self._take(count), self._slots.released)

    def evaluate_ahead(self, cells: PendingCells, table: Tensor) -> None:
        """Evaluate such cells as one recorded pass. The table, (4 + rows, rows), is on the device:
        see `_recorded_pass`. Rows are padded to a shape that is recorded."""
        cells.output = self._play(table, None).copy()

    def _play(self, table: Tensor, early: PreTrainedModel | None) -> NodeOutput:
        self._plan.visible = self._visible()
        shape = (table.shape[1], self._plan.visible, early)
        return self.graphs.play(partial(self._recorded_pass, early=early), shape, table)

    def _recorded_pass(self, table: Tensor, early: PreTrainedModel | None) -> NodeOutput:
        """A pass on the device, the same kernels whatever the values.

        The table has, for each query, its token, its depth, its slot and the slot of the ancestor
        whose mask row it starts from; below them which queries are its ancestors or itself.
        """
        (tokens, depths, slots, above), inside = table[:4], table[4:].bool()
        rows = self._ancestors[above]
        rows |= torch.zeros_like(rows).index_copy_(1, slots, inside)
        self._ancestors.index_copy_(0, slots, rows)
        self._plan.slots = slots
        return self._forward(tokens, depths, slots, None, early)

    def _visible(self) -> int:
        return min(bucket(self._slots.reach, BLOCK), self._plan.capacity)

    def _resize(self, capacity: int) -> None:
        self.graphs.clear()
        super()._resize(capacity)
