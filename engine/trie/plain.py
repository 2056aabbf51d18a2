"""The plain backend: runs every path through the model from its first token, without a cache.

For models that cannot take arbitrary masks: encoder-decoders, recurrent models, attention windows
shorter than the text. Slow for long texts, and always right.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.prompt import Encoded
from engine.trie.backend import NodeOutput, OutputRow
from engine.trie.cell import Cell, top

BATCH = 32  # most paths in one forward pass


class Plain:
    """Runs whole paths; those of one length and one context share a pass."""

    def __init__(self, model: PreTrainedModel, vocabulary: int | None = None) -> None:
        self._model = model
        self._vocabulary = vocabulary

    @property
    def used(self) -> int:
        """No slots: nothing is kept between calls."""
        return 0

    def release_memory(self) -> None:
        """Nothing to release."""

    def top(self, context: Any) -> Cell:
        """A separate trie for every context."""
        return top(context)

    def states(self, cell: Cell) -> Tensor:
        """The last hidden state at every token down to a cell, computed again: (tokens, width)."""
        hidden = self._run(self._model, [cell])[1]
        return hidden[0, :, -1]

    def evaluate(
        self, cells: Sequence[Cell], early: PreTrainedModel | None = None
    ) -> dict[Cell, OutputRow]:
        """The output of the model, or of its own first layers, after each cell.

        A cell above another one shares its row.
        """
        tips: dict[Cell, list[Cell]] = {}  # the last cell of a row, and the cells wanted of the row
        for cell in sorted(dict.fromkeys(cells), key=lambda cell: -cell.depth):
            above = (tip for tip in tips if cell in tip.ancestry())
            tips.setdefault(next(above, cell), []).append(cell)
        alike: dict[tuple[int, int], list[Cell]] = defaultdict(list)
        for tip in tips:
            alike[id(tip.context), tip.depth].append(tip)
        output_rows: dict[Cell, OutputRow] = {}
        for group in alike.values():
            for batch in (group[at : at + BATCH] for at in range(0, len(group), BATCH)):
                read = [(row, cell) for row, tip in enumerate(batch) for cell in tips[tip]]
                output = self._read(batch, read, early)
                output_rows |= {cell: OutputRow(output, at) for at, (_, cell) in enumerate(read)}
        return output_rows

    @torch.inference_mode()
    def _read(
        self, tips: Sequence[Cell], read: list[tuple[int, Cell]], early: PreTrainedModel | None
    ) -> NodeOutput:
        logits, hidden = self._run(early or self._model, tips)
        rows, depths = [row for row, _ in read], [cell.depth for _, cell in read]
        states = hidden[rows, depths] if early is None else None
        return NodeOutput.of(logits[rows, depths], states, self._vocabulary)

    @torch.inference_mode()
    def _run(self, model: PreTrainedModel, tips: Sequence[Cell]) -> tuple[Tensor, Tensor]:
        """Logits, (rows, length, vocab), and hidden states, (rows, length, 1 + layers, width)."""
        ids = torch.tensor([tip.path() for tip in tips], device=self._model.device)
        whole = model is self._model
        inputs = self._inputs(ids, tips[0].context)
        output = model(**inputs, use_cache=False, output_hidden_states=whole)
        layers = output.get("decoder_hidden_states") or output.get("hidden_states") or ()
        states = [state.to(output.logits.device) for state in layers]
        return output.logits, torch.stack(states, 2) if whole else output.logits

    def _inputs(self, ids: Tensor, context: Encoded | None) -> dict[str, Any]:
        """The model's arguments for the paths, with an encoder's output where there is one."""
        if context is None:
            return {"input_ids": ids}
        rows = ids.shape[0]
        return {
            "decoder_input_ids": ids,
            "encoder_outputs": context.outputs(rows),
            "attention_mask": context.mask.expand(rows, -1),
        }
