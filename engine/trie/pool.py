"""The trie backend: each cell owns a position in a pooled cache, its mask is its ancestors.

One forward pass evaluates any set of cells, wherever they stand. Knows masks and positions; refuses
to know prompts, strategies and processors. The tick itself takes and gives device tensors only, and
on CUDA its shapes come in buckets, so that it can be recorded as a graph.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from engine.accel.fused_layers import quicken, read
from engine.accel.fusing import TRACING, Fused
from engine.accel.graphs import ROWS, Graphs, bucket, recordable
from engine.accel.grouped_attention import BOOLEAN_MASKS
from engine.trie.backend import Place, Reading, Unnamed
from engine.trie.cache_layer import CAPACITY, Kernels, Plan, PoolLayer, resized
from engine.trie.cell import Cell, lineage, top, up_to
from engine.trie.slots import NOBODY, Slots

CHUNK = 512  # most cells in one forward pass: bounds the memory a long prompt needs
BLOCK = 64  # the visible part of the pool grows by this many positions
GRAPH_BLOCK = 512  # and where ticks are recorded, by doubling from this many: few shapes
GRAPH_CAPACITY = 1024  # what a new pool has room for there: another size loses the recordings


class Pool:
    """Positions, ancestor masks and the tick for one model."""

    def __init__(
        self,
        model: PreTrainedModel,
        positions: int,
        vocabulary: int | None = None,
        *,
        quick: bool = True,
    ) -> None:
        self._model = model
        self._vocabulary = vocabulary
        device, recorded = model.device, recordable(model)
        capacity = GRAPH_CAPACITY if recorded else CAPACITY
        self._slots = Slots(capacity, positions)
        self._plan = Plan(capacity)
        not_fused = quicken(model) if quick else "switched off"
        few = not_fused is None
        self._not_fused = not_fused
        self._plan.kernels = Kernels.FUSED if few else Kernels.REFERENCE
        fused = None if few else Fused.of(model)  # in few kernels nothing is left to compile
        self._graphs = Graphs[Reading](device, fused) if recorded else None
        layers = model.config.get_text_config(decoder=True).num_hidden_layers
        self._layers = [PoolLayer(self._plan) for _ in range(layers)]
        self._cache = Cache(layers=[*self._layers])
        self._top = top(released=self._slots.released)
        # (slot, slot): what the cell at a slot may attend to, itself and its ancestors; of padding
        # nothing.
        self._ancestors = torch.zeros(capacity, capacity, dtype=torch.bool, device=device)
        # (slot, width): the last hidden state of the cell at a slot; made when the width is known.
        self._states = torch.empty(0)
        self._selects_logits = "logits_to_keep" in inspect.signature(model.forward).parameters
        self._bool_mask = model.config._attn_implementation in BOOLEAN_MASKS

    @property
    def accelerations(self) -> list[str]:
        """The accelerations in use."""
        graphs = self._graphs is not None and self._graphs.failure is None
        return ["fused layers"] * (self._not_fused is None) + ["CUDA graphs"] * graphs

    @property
    def fallbacks(self) -> list[str]:
        """The accelerations that are not in use, each with its reason."""
        found = [f"no fused layers: {self._not_fused}"] if self._not_fused else []
        if self._graphs is not None and self._graphs.failure:
            found.append(f"no CUDA graphs: {self._graphs.failure}")
        return found

    @property
    def used(self) -> int:
        """Positions that living cells own."""
        return self._slots.used

    def top(self, context: Any) -> Cell:
        """The one top of all prompts, so that prompts with a common beginning share it."""
        return self._top

    def attends_to(self, cell: Cell) -> set[int]:
        """The positions in an evaluated cell's row of the mask."""
        return set(self._ancestors[cell.slot].nonzero().flatten().tolist())

    def states(self, cell: Cell) -> Tensor:
        """The last hidden state at every token down to an evaluated cell: (tokens, width)."""
        slots = [ancestor.slot for ancestor in cell.ancestry()][::-1]
        return self._states[torch.tensor(slots, device=self._states.device)]

    def evaluate(
        self, cells: Sequence[Cell], early: PreTrainedModel | None = None
    ) -> dict[Cell, Place]:
        """What the model says after each cell; missing ancestors go along, long paths in chunks.

        ``early`` is the model's own first layers: they read and write the same positions, and the
        cells they evaluate remain to be evaluated as a whole.
        """
        wanted = set(cells)
        # A living cell whose reading is gone is forwarded again, into the position it has.
        queue = up_to(cells, lambda cell: cell.whole if early is None else cell.slot is not None)
        if self._graphs and len(queue) <= ROWS:
            return self._play(self._graphs, queue, wanted, early)
        self._allocate([cell for cell in queue if cell.slot is None])
        places: dict[Cell, Place] = {}
        for chunk in (queue[at : at + CHUNK] for at in range(0, len(queue), CHUNK)):
            keep = [at for at, cell in enumerate(chunk) if cell in wanted]
            reading = self._tick(chunk, keep, early)
            places |= {chunk[at]: Place(reading, row) for row, at in enumerate(keep)}
        return places

    def _play(
        self,
        graphs: Graphs[Reading],
        cells: Sequence[Cell],
        wanted: Collection[Cell],
        early: PreTrainedModel | None,
    ) -> dict[Cell, Place]:
        """Evaluate a few cells as one recorded tick."""
        new = [cell for cell in cells if cell.slot is None]
        if len(new) == len(cells):  # they get their rows of ancestors within the tick
            above, inside = self._lineage(cells)
            self._assign(new)
        else:
            self._allocate(new)
            above = [cell.slot or NOBODY for cell in cells]
            inside = torch.eye(len(cells), dtype=torch.uint8)
        pairs = zip(cells, above, strict=True)
        rows = [(cell.token, cell.depth, cell.slot, parent) for cell, parent in pairs]
        missing = bucket(len(cells)) - len(cells)
        rows += [(0, 0, NOBODY, NOBODY)] * missing
        self._plan.visible = self._visible()
        shape = (len(rows), self._plan.visible, early)
        try:
            given = torch.tensor(rows).T, pad(inside, (0, missing, 0, missing))
            reading = graphs.play(partial(self._step, early=early), shape, torch.cat(given))
        except BaseException:
            # Nothing is known of them: who asks again starts anew.
            self._slots.release([cell.slot for cell in new if cell.slot is not None])
            for cell in new:
                cell.slot = None
            raise
        for cell in cells:
            cell.whole |= early is None
        keep = [at for at, cell in enumerate(cells) if cell in wanted]
        # In memory of their own: the next tick writes over a recording's. All of them with what
        # fills them up, so that the shapes of what is read off them repeat.
        every = len(keep) == len(cells)
        own = reading.copy() if every else reading.rows(self._on_device(keep))
        return {cells[at]: Place(own, row) for row, at in enumerate(keep)}

    @property
    def recorded(self) -> bool:
        """Whether a few cells are evaluated as one recorded tick."""
        return self._graphs is not None

    def unnamed(self, count: int) -> Unnamed:
        """Positions for cells of which only the device will know what they are."""
        return Unnamed(self._take(count), self._slots.released)

    def evaluate_ahead(self, cells: Unnamed, table: Tensor) -> None:
        """Evaluate such cells as one recorded tick. The table, (4 + rows, rows), is on the device
        and says what a tick works on; rows are filled up to a shape that is recorded."""
        assert self._graphs is not None, "only recorded ticks go on by themselves"
        self._plan.visible = self._visible()
        shape = (table.shape[1], self._plan.visible, None)
        reading = self._graphs.play(self._step, shape, table)
        cells.reading = reading.copy()

    def _step(self, inputs: Tensor, early: PreTrainedModel | None = None) -> Reading:
        """A tick's work on the device, (4 + queries, queries) in: the same kernels whatever the
        values."""
        (tokens, depths, slots, above), inside = inputs[:4], inputs[4:].bool()
        rows = self._ancestors[above]  # with what is added nobody's row stays empty
        rows |= torch.zeros_like(rows).index_copy_(1, slots, inside)
        self._ancestors.index_copy_(0, slots, rows)
        self._plan.slots = slots
        return self._forward(tokens, depths, slots, None, early)

    def _allocate(self, cells: Sequence[Cell]) -> None:
        """Give every new cell a position and its row of ancestors; parents come first."""
        if not cells:
            return
        above, inside = self._lineage(cells)
        self._assign(cells)
        slots = self._on_device([cell.slot for cell in cells])
        rows = self._ancestors[self._on_device(above)]
        rows[:, slots] = inside.bool().to(rows.device)
        self._ancestors[slots] = rows

    def _lineage(self, cells: Sequence[Cell]) -> tuple[list[int], Tensor]:
        """What the rows of new cells are made of: the row of somebody's position, and which of the
        cells are added, (cells, cells)."""
        above, inside = above_and_inside(cells)
        return [cell.slot or NOBODY for cell in above], inside

    def _tick(
        self, cells: Sequence[Cell], keep: Sequence[int], early: PreTrainedModel | None
    ) -> Reading:
        """One forward pass over cells that have their positions; reads the logits of some."""
        rows = [(cell.token, cell.depth, cell.slot) for cell in cells]
        tokens, depths, slots = self._on_device(rows).T.contiguous()
        self._plan.slots, self._plan.visible = slots, self._visible()
        for cell in cells:
            cell.whole |= early is None
        return self._forward(tokens, depths, slots, self._on_device(keep), early)

    @torch.inference_mode()
    def _forward(
        self,
        tokens: Tensor,
        depths: Tensor,
        slots: Tensor,
        kept: Tensor | None,
        early: PreTrainedModel | None,
    ) -> Reading:
        """The part of a tick that stays on the device: (queries,) tensors in, a reading out of
        those kept, or of all."""
        mask = self._ancestors[slots, : self._plan.visible]  # (queries, visible)
        mask[:, NOBODY] |= slots == NOBODY  # padding must see something, or its softmax is 0/0
        self._plan.ready = None
        selected = kept is not None and self._selects_logits
        selection = {"logits_to_keep": kept} if selected else {}
        with TRACING:
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
        of = read if self._plan.kernels is Kernels.FUSED else Reading.of
        return of(logits, hidden, self._vocabulary)

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
        """How much of the pool this tick looks at: up to the highest position taken, in blocks."""
        needed = self._slots.reach
        size = bucket(needed, GRAPH_BLOCK) if self._graphs else -(-needed // BLOCK) * BLOCK
        return min(size, self._plan.capacity)

    def _assign(self, cells: Sequence[Cell]) -> None:
        """Give new cells their positions."""
        for cell, slot in zip(cells, self._take(len(cells)), strict=True):
            cell.slot = slot

    def _take(self, count: int) -> list[int]:
        """Positions that are free, of a pool that is made larger for them if it must be."""
        if capacity := self._slots.missing(count):
            self._resize(capacity)
        return self._slots.take(count)

    def settle(self) -> None:
        """Give back room that none of the last comparisons needed, now that one has ended."""
        if capacity := self._slots.spare():
            self._resize(capacity)

    def _resize(self, capacity: int) -> None:
        self._plan.capacity = capacity
        self._slots.resize(capacity)
        if self._graphs:
            self._graphs.clear()
        for layer in self._layers:
            layer.resize()
        rows = resized(self._ancestors, capacity, dim=0)
        self._ancestors = resized(rows, capacity, dim=1)


def above_and_inside(cells: Sequence[Cell]) -> tuple[list[Cell], Tensor]:
    """Of each cell, parents before children, the last ancestor that is none of them, and which of
    them are above it or the same, (cells, cells)."""
    above, inside = lineage(cells)
    return above, torch.frombuffer(inside, dtype=torch.uint8).view(len(cells), -1)
