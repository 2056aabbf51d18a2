"""Processors at work: rows of scores go in, what each processor makes of them comes out.

Knows which rows a processor can take together, and which processors never look at the text. Refuses
to know whose processors they are and what is chosen afterwards.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from transformers import LogitsProcessor
from transformers.generation import logits_process as theirs

from engine.accel.batched_draws import Drawn, Draws, in_turn, key, named
from engine.accel.graphs import Graphs
from engine.sampling import clocks, first_to_ring
from engine.trace.distributions import Stage, processor_name

# What these make of a row depends on nothing but the row: to have the text on the device as well
# takes longer, the longer the text is.
_BLIND = {
    theirs.EpsilonLogitsWarper,
    theirs.EtaLogitsWarper,
    theirs.InfNanRemoveLogitsProcessor,
    theirs.LogitNormalization,
    theirs.MinPLogitsWarper,
    theirs.SuppressTokensLogitsProcessor,
    theirs.TemperatureLogitsWarper,
    theirs.TopKLogitsWarper,
    theirs.TopPLogitsWarper,
    theirs.TypicalLogitsWarper,
}

# What these do to a few rows is the same kernels every time, to be recorded on a GPU.
_RECORDED = {
    theirs.EpsilonLogitsWarper,
    theirs.MinPLogitsWarper,
    theirs.TemperatureLogitsWarper,
    theirs.TopKLogitsWarper,
    theirs.TopPLogitsWarper,
    theirs.TypicalLogitsWarper,
}
ROWS = 8  # most rows of which that is kept

Text = Sequence[int]


class Processing:
    """Processors at work for all who read one model; on a GPU what can be is recorded."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._graphs: Graphs[Tensor] | None = None
        self.draws = Draws()

    def __call__(
        self,
        processors: Sequence[LogitsProcessor],
        texts: Sequence[Text],
        scores: Tensor,
        beams: int,
    ) -> list[Stage]:
        """What each processor makes of the scores after some texts."""
        if _records(processors, scores):
            return self.recorded(processors, scores)
        return processed(processors, texts, scores, beams)

    def drawn(
        self,
        processors: Sequence[LogitsProcessor],
        texts: Sequence[Text],
        scores: Tensor,
        beams: int,
        generator: torch.Generator,
    ) -> Drawn:
        """The same, and tokens drawn from what is left of each row, (rows, 1)."""
        if _records(processors, scores):
            return self.draws.add(processors, scores, clocks(scores, generator))
        stages = self(processors, texts, scores, beams)
        left = stages[-1].scores if stages else scores
        probs = left.softmax(-1)
        return Drawn(stages, first_to_ring(probs, clocks(probs, generator), 1))

    def recorded(self, processors: Sequence[LogitsProcessor], scores: Tensor) -> list[Stage]:
        """The same of processors that look at scores alone, with one launch for all of them."""
        with self._lock:
            self._graphs = self._graphs or Graphs(scores.device)
            shape = (scores.shape, *map(key, processors))
            after = self._graphs.play(partial(in_turn, processors), shape, scores).clone()
        return named(processors, after)


def _records(processors: Sequence[LogitsProcessor], scores: Tensor) -> bool:
    return scores.device.type == "cuda" and len(scores) <= ROWS and _recordable(processors)


def _recordable(processors: Sequence[LogitsProcessor]) -> bool:
    return bool(processors) and all(
        type(processor) in _RECORDED and key(processor) is not None for processor in processors
    )


def processed(
    processors: Sequence[LogitsProcessor], texts: Sequence[Text], scores: Tensor, beams: int
) -> list[Stage]:
    """What each processor makes of the scores after some texts; it takes those of one length at a
    time."""
    if not processors:
        return []
    if all(type(processor) in _BLIND for processor in processors):
        nothing = torch.empty(len(texts), 0, dtype=torch.long, device=scores.device)
        return _alike(processors, nothing, scores, beams=1)
    lengths = [len(text) for text in texts]
    if len(set(lengths)) == 1:
        return _alike(processors, _on(scores.device, texts), scores, beams)
    stages: list[Stage] = []
    for length in sorted(set(lengths)):
        rows = [row for row, own in enumerate(lengths) if own == length]
        ids = _on(scores.device, [texts[row] for row in rows])
        alike = _alike(processors, ids, scores[rows], beams)
        stages = stages or [Stage(stage.name, torch.empty_like(scores)) for stage in alike]
        for stage, own in zip(stages, alike, strict=True):
            stage.scores[rows] = own.scores
    return stages


def _alike(
    processors: Sequence[LogitsProcessor], ids: Tensor, scores: Tensor, beams: int
) -> list[Stage]:
    texts = len(ids)
    if missing := -texts % beams:
        # A processor may count on a row for every beam: a group of them is repeated.
        rows = torch.arange(texts + missing, device=ids.device) % texts
        ids, scores = ids[rows], scores[rows]
    stages = []
    for processor in processors:
        # A caller's processor may write into what it gets, and what came before must survive.
        trusted = type(processor).__module__.startswith("transformers.")
        scores = processor(ids, scores if trusted else scores.clone())
        stages.append(Stage(processor_name(processor), scores[:texts]))
    return stages


def _on(device: torch.device, texts: Sequence[Text]) -> Tensor:
    return torch.tensor([tuple(text) for text in texts], dtype=torch.long, device=device)
