"""The trie backend: each cell owns a position in a pooled cache, its mask is its ancestors.

One forward pass evaluates any set of cells, wherever they stand. Knows masks and positions; refuses
to know prompts, strategies and processors. The tick itself takes and gives device tensors only, and
on CUDA its shapes come in buckets, so that it can be captured as a graph.
"""

from __future__ import annotations

import heapq
import inspect
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from engine.backend import Place, Reading
from engine.errors import PlaygroundError
from engine.pool_layer import CAPACITY, Plan, PoolLayer, widened
from engine.trie import Cell, top

NOBODY = 0  # the position padding writes to; its row of ancestors is empty
CHUNK = 512  # most cells in one forward pass: bounds the memory a long prompt needs
BLOCK = 64  # the visible part of the pool grows by this many positions


class Pool:
    """Positions, ancestor masks and the tick for one model."""

    def __init__(
        self, model: PreTrainedModel, positions: int, vocabulary: int | None = None
    ) -> None:
        self._model = model
        self._vocabulary = vocabulary
        self._limit = positions
        self._plan = Plan()
        layers = model.config.get_text_config(decoder=True).num_hidden_layers
        self._layers = [PoolLayer(self._plan) for _ in range(layers)]
        self._cache = Cache(layers=[*self._layers])
        self._released: deque[int] = deque()
        self._top = top(released=self._released)
        # A heap, because low positions first keeps the visible part short.
        self._free = list(range(NOBODY + 1, CAPACITY))
        self._taken = bytearray(CAPACITY)
        self._highest = NOBODY
        # (slot, slot): what the cell at a slot may attend to, itself and its ancestors.
        self._ancestors = torch.zeros(CAPACITY, CAPACITY, dtype=torch.bool, device=model.device)
        # (slot, width): the last hidden state of the cell at a slot; made when the width is known.
        self._states = torch.empty(0)
        self._selects_logits = "logits_to_keep" in inspect.signature(model.forward).parameters
        self._bool_mask = model.config._attn_implementation == "sdpa"

    @property
    def used(self) -> int:
        """Positions that living cells own."""
        self._collect()
        return self._plan.capacity - 1 - len(self._free)

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
        queue = _up_to(cells, lambda cell: cell.whole if early is None else cell.slot is not None)
        self._allocate([cell for cell in queue if cell.slot is None])
        places: dict[Cell, Place] = {}
        for chunk in (queue[at : at + CHUNK] for at in range(0, len(queue), CHUNK)):
            keep = [at for at, cell in enumerate(chunk) if cell in wanted]
            reading = self._tick(chunk, keep, early)
            places |= {chunk[at]: Place(reading, row) for row, at in enumerate(keep)}
        return places

    def _allocate(self, cells: Sequence[Cell]) -> None:
        """Give every new cell a position and its row of ancestors; parents come first."""
        if not cells:
            return
        self._collect()
        self._reserve(len(cells))
        order = {cell: row for row, cell in enumerate(cells)}
        # A row is its parent's row and itself. Where the parent is new too, the part above the
        # new cells is the same for the whole branch: the row of its last evaluated ancestor.
        inside = torch.eye(len(cells), dtype=torch.bool)
        above: list[int] = []
        for row, cell in enumerate(cells):
            parent = cell.parent
            assert parent is not None
            if parent in order:
                inside[row] |= inside[order[parent]]
                above.append(above[order[parent]])
            else:
                above.append(NOBODY if parent.slot is None else parent.slot)
        for cell in cells:
            cell.slot = self._take()
        device = self._ancestors.device
        slots = torch.tensor([cell.slot for cell in cells], device=device)
        rows = self._ancestors[torch.tensor(above, device=device)]
        rows[:, slots] = inside.to(device)
        self._ancestors[slots] = rows

    def _tick(
        self, cells: Sequence[Cell], keep: Sequence[int], early: PreTrainedModel | None
    ) -> Reading:
        """One forward pass over cells that have their positions; reads the logits of some."""
        device = self._ancestors.device
        padding = _bucket(len(cells), device) - len(cells)
        rows = [(cell.token, cell.depth, cell.slot) for cell in cells] + [(0, 0, NOBODY)] * padding
        tokens, depths, slots = torch.tensor(rows, device=device).T.contiguous()
        self._plan.slots = slots
        self._plan.visible = self._visible(device)
        kept = torch.tensor(keep, dtype=torch.long, device=device)
        for cell in cells:
            cell.whole |= early is None
        return self._forward(tokens, depths, slots, kept, early)

    @torch.inference_mode()
    def _forward(
        self,
        tokens: Tensor,
        depths: Tensor,
        slots: Tensor,
        kept: Tensor,
        early: PreTrainedModel | None,
    ) -> Reading:
        """The part of a tick that stays on the device: (queries,) tensors in, a reading out."""
        mask = self._ancestors[slots, : self._plan.visible]  # (queries, visible)
        mask[:, NOBODY] |= slots == NOBODY  # padding must see something, or its softmax is 0/0
        selection = {"logits_to_keep": kept} if self._selects_logits else {}
        output = (early or self._model)(
            input_ids=tokens[None],
            position_ids=depths[None],
            attention_mask=self._as_attention_mask(mask),
            past_key_values=self._cache,
            use_cache=True,
            output_hidden_states=early is None,
            **selection,
        )
        logits = output.logits[0] if self._selects_logits else output.logits[0, kept]
        if early is not None:
            return Reading.of(logits, width=self._vocabulary)
        # (queries, 1 + layers, width); layers may live on several devices
        hidden = torch.stack([state[0].to(logits.device) for state in output.hidden_states], 1)
        self._keep_states(slots, hidden[:, -1])
        return Reading.of(logits, hidden[kept], self._vocabulary)

    def _keep_states(self, slots: Tensor, states: Tensor) -> None:
        if len(self._states) != self._plan.capacity:
            self._states = self._states.to(states).reshape(-1, states.shape[-1])
            self._states = widened(self._states, self._plan.capacity, dim=0)
        self._states.index_copy_(0, slots, states)

    def _as_attention_mask(self, mask: Tensor) -> Tensor:
        """The 4-D form, which models hand to their attention untouched; eager attention adds it."""
        if not self._bool_mask:
            floor = torch.finfo(self._model.dtype).min
            mask = torch.zeros_like(mask, dtype=self._model.dtype).masked_fill(~mask, floor)
        return mask[None, None]

    def _visible(self, device: torch.device) -> int:
        """How much of the pool this tick looks at: up to the highest position taken, in blocks."""
        blocks = -(-(self._highest + 1) // BLOCK)
        return min(_bucket(blocks, device) * BLOCK, self._plan.capacity)

    def _take(self) -> int:
        slot = heapq.heappop(self._free)
        self._taken[slot] = True
        self._highest = max(self._highest, slot)
        return slot

    def _collect(self) -> None:
        """Take back the positions of cells that are gone."""
        while self._released:
            slot = self._released.popleft()
            self._taken[slot] = False
            heapq.heappush(self._free, slot)
        while self._highest > NOBODY and not self._taken[self._highest]:
            self._highest -= 1

    def _reserve(self, count: int) -> None:
        """Make sure that ``count`` positions are free, doubling the pool up to its limit."""
        old = self._plan.capacity
        needed = old + count - len(self._free)
        if needed <= old:
            return
        if needed > self._limit:
            raise PlaygroundError(
                f"this comparison needs {needed} positions, for the tokens of the prompt and of"
                f" every branch; the limit is {self._limit}: shorten the prompt or use fewer beams"
            )
        self._plan.capacity = min(max(needed, 2 * old), self._limit)
        for layer in self._layers:
            layer.grow()
        rows = widened(self._ancestors, self._plan.capacity, dim=0)
        self._ancestors = widened(rows, self._plan.capacity, dim=1)
        self._taken.extend(bytes(self._plan.capacity - old))
        for slot in range(old, self._plan.capacity):
            heapq.heappush(self._free, slot)


def _up_to(cells: Iterable[Cell], known: Callable[[Cell], bool]) -> list[Cell]:
    """The cells and their ancestors up to the first known ones, parents before children."""
    found: dict[Cell, None] = {}
    for cell in cells:
        branch = []
        for ancestor in cell.ancestry():
            if ancestor is not cell and (known(ancestor) or ancestor in found):
                break
            branch.append(ancestor)
        found.update(dict.fromkeys(reversed(branch)))
    return list(found)


def _bucket(size: int, device: torch.device) -> int:
    """Shapes repeat on CUDA, where a graph is captured for each; a CPU pays for every row."""
    return size if device.type == "cpu" else 1 << (size - 1).bit_length()
