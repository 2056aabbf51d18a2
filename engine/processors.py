"""Logits processors applied to rows of scores: what each of them leaves, for the decision and the
trace."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import LogitsProcessor
from transformers.generation import logits_process as library

from engine.accel import enabled
from engine.accel.graph_calls import GraphCalls, Sampled, processor_key
from engine.sampling import exponential_noise, race
from engine.trace.distributions import Stage, processor_name

# These read only the scores, so the text need not be copied to the device, which would take longer
# the longer the text is.
_SCORES_ONLY = {
    library.EpsilonLogitsWarper,
    library.EtaLogitsWarper,
    library.InfNanRemoveLogitsProcessor,
    library.LogitNormalization,
    library.MinPLogitsWarper,
    library.SuppressTokensLogitsProcessor,
    library.TemperatureLogitsWarper,
    library.TopKLogitsWarper,
    library.TopPLogitsWarper,
    library.TypicalLogitsWarper,
}

# These of them launch the same kernels every time, so that a CUDA graph can replay them.
_RECORDABLE = {
    library.EpsilonLogitsWarper,
    library.MinPLogitsWarper,
    library.TemperatureLogitsWarper,
    library.TopKLogitsWarper,
    library.TopPLogitsWarper,
    library.TypicalLogitsWarper,
}
MAX_GRAPH_ROWS = 8  # more rows than this are processed without a graph

Text = Sequence[int]


def process(
    processors: Sequence[LogitsProcessor],
    texts: Sequence[Text],
    scores: Tensor,
    beams: int,
    calls: GraphCalls,
) -> list[Stage]:
    """Apply processors in order to scores, (rows, vocab): the scores after each of them."""
    if _recordable(processors, scores):
        return calls.process(processors, scores)
    return process_directly(processors, texts, scores, beams)


def sample(
    processors: Sequence[LogitsProcessor],
    texts: Sequence[Text],
    scores: Tensor,
    beams: int,
    generator: torch.Generator,
    calls: GraphCalls,
) -> Sampled:
    """Apply processors, and draw a token from what they leave of each row: (rows, 1)."""
    if _recordable(processors, scores):
        return calls.sample(processors, scores, exponential_noise(scores, generator))
    stages = process(processors, texts, scores, beams, calls)
    probs = (stages[-1].scores if stages else scores).softmax(-1)
    noise = exponential_noise(probs, generator)
    return Sampled(stages, race(probs, noise, 1), noise)


def _recordable(processors: Sequence[LogitsProcessor], scores: Tensor) -> bool:
    return (
        scores.device.type == "cuda"
        and enabled()
        and len(scores) <= MAX_GRAPH_ROWS
        and are_recordable(processors)
    )


def are_recordable(processors: Sequence[LogitsProcessor]) -> bool:
    """Whether there are processors, and a CUDA graph can replay all of them."""
    return bool(processors) and all(
        type(processor) in _RECORDABLE and processor_key(processor) is not None
        for processor in processors
    )


def process_directly(
    processors: Sequence[LogitsProcessor], texts: Sequence[Text], scores: Tensor, beams: int
) -> list[Stage]:
    """`process` without graphs. Processors take texts of one length at a time."""
    if not processors:
        return []
    if all(type(processor) in _SCORES_ONLY for processor in processors):
        no_text = torch.empty(len(texts), 0, dtype=torch.long, device=scores.device)
        return _process_batch(processors, no_text, scores, beams=1)
    lengths = [len(text) for text in texts]
    if len(set(lengths)) == 1:
        return _process_batch(processors, _token_ids(texts, scores), scores, beams)
    stages: list[Stage] = []
    for length in sorted(set(lengths)):
        rows = [row for row, own in enumerate(lengths) if own == length]
        ids = _token_ids([texts[row] for row in rows], scores)
        of_length = _process_batch(processors, ids, scores[rows], beams)
        stages = stages or [Stage(stage.name, torch.empty_like(scores)) for stage in of_length]
        for stage, own in zip(stages, of_length, strict=True):
            stage.scores[rows] = own.scores
    return stages


def _process_batch(
    processors: Sequence[LogitsProcessor], ids: Tensor, scores: Tensor, beams: int
) -> list[Stage]:
    texts = len(ids)
    if missing := -texts % beams:
        # A processor may rely on a multiple of num_beams rows: rows are repeated to fill up.
        rows = torch.arange(texts + missing, device=ids.device) % texts
        ids, scores = ids[rows], scores[rows]
    stages = []
    for processor in processors:
        # A caller's processor may write into its input, which the trace still needs.
        from_library = type(processor).__module__.startswith("transformers.")
        scores = processor(ids, scores if from_library else scores.clone())
        stages.append(Stage(processor_name(processor), scores[:texts]))
    return stages


def _token_ids(texts: Sequence[Text], scores: Tensor) -> Tensor:
    return torch.tensor([tuple(text) for text in texts], dtype=torch.long, device=scores.device)
