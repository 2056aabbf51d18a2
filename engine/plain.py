"""The plain backend: every path is run through the model from its first token, without a cache.

For models that cannot take arbitrary masks: encoder-decoders, recurrent ones, sliding windows
shorter than the text. Slow for long texts and always right. Strategies cannot tell the difference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from engine.backend import Place, Reading
from engine.prompt import Encoded
from engine.trie import Cell, top

BATCH = 32  # most paths in one forward pass


class Plain:
    """Runs whole paths, those of one length and one prompt together."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model

    @property
    def used(self) -> int:
        """Nothing is kept between calls."""
        return 0

    def top(self, context: Any) -> Cell:
        """A trie of its own for every context."""
        return top(context)

    def evaluate(self, cells: Sequence[Cell]) -> dict[Cell, Place]:
        """What the model says after each cell."""
        alike: dict[tuple[int, int], list[Cell]] = defaultdict(list)
        for cell in dict.fromkeys(cells):
            alike[id(cell.context), cell.depth].append(cell)
        places: dict[Cell, Place] = {}
        for group in alike.values():
            for batch in (group[at : at + BATCH] for at in range(0, len(group), BATCH)):
                reading = self._forward(batch)
                places |= {cell: Place(reading, row) for row, cell in enumerate(batch)}
        return places

    @torch.inference_mode()
    def _forward(self, cells: Sequence[Cell]) -> Reading:
        ids = torch.tensor([cell.path() for cell in cells], device=self._model.device)
        output = self._model(**self._inputs(ids, cells[0].context), use_cache=False)
        return Reading.of(output.logits[:, -1])

    def _inputs(self, ids: torch.Tensor, context: Encoded | None) -> dict[str, Any]:
        """The paths as the model takes them: behind an encoder's output, or alone."""
        if context is None:
            return {"input_ids": ids}
        rows = ids.shape[0]
        return {
            "decoder_input_ids": ids,
            "encoder_outputs": context.outputs(rows),
            "attention_mask": context.mask.expand(rows, -1),
        }
