"""Processors at work: rows of scores go in, what each processor makes of them comes out.

Knows which rows a processor can take together. Refuses to know whose processors they are and what
is chosen afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import LogitsProcessor

from engine.observe import Stage, processor_name


def processed(
    processors: Sequence[LogitsProcessor], texts: Sequence[Tensor], scores: Tensor, beams: int
) -> list[Stage]:
    """What each processor makes of the scores after some texts; it takes those of one length at a
    time."""
    lengths = [len(text) for text in texts]
    if len(set(lengths)) == 1:
        return _alike(processors, torch.stack(list(texts)), scores, beams)
    stages: list[Stage] = []
    for length in sorted(set(lengths)):
        rows = [row for row, own in enumerate(lengths) if own == length]
        ids = torch.stack([texts[row] for row in rows])
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
