"""Distributions for the trace: what the model said, what each processor made of it, what was used.

Knows how rows of scores become a few numbers, with one transfer to the host. Refuses to know who
chose and why. Nothing here changes a score.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.backend import Reading, entropy, most
from engine.tokens import Speller
from engine.trace import Candidate, Distribution


@dataclass(frozen=True, eq=False)
class Stage:
    """Scores as one processor left them, (rows, vocab)."""

    name: str
    scores: Tensor


@dataclass(frozen=True)
class Observed:
    """One token of one row as the trace will tell it; log-probabilities, None where cut."""

    distribution: Distribution
    raw: float
    final: float | None
    rank: int


def observe(
    reading: Reading,
    stages: Sequence[Stage],
    picks: Sequence[tuple[int, int]],
    speller: Speller,
) -> list[Observed]:
    """What to tell of each picked (row, token), read off the rows they were picked from."""
    tokens = _tokens_to_tell(reading, stages, picks)  # (rows, tokens)
    log_probs = [reading.log_probs, *(stage.scores.log_softmax(-1) for stage in stages)]
    told = torch.stack([at_stage.gather(-1, tokens) for at_stage in log_probs], dim=-1)
    raw_entropy = reading.entropy.tolist()
    final_entropy, kept = _after(log_probs[-1]) if stages else (raw_entropy, None)
    by_token = [
        dict(zip(ids, values, strict=True))
        for ids, values in zip(tokens.tolist(), told.tolist(), strict=True)
    ]
    names = tuple(stage.name for stage in stages)
    distributions = {
        row: Distribution(
            candidates=_candidates(by_token[row], speller),
            processors=names,
            raw_entropy=_round(raw_entropy[row]),
            final_entropy=_round(final_entropy[row]),
            kept=kept[row] if kept else reading.logits.shape[-1],
        )
        for row in dict.fromkeys(row for row, _ in picks)
    }
    return [
        Observed(
            distributions[row],
            raw=round(by_token[row][token][0], 6),
            final=_finite(by_token[row][token][-1]),
            rank=rank,
        )
        for (row, token), rank in zip(picks, _ranks(reading, picks), strict=True)
    ]


def processor_name(processor: object) -> str:
    """The setting's own word for a processor: TopPLogitsWarper is top_p."""
    name = re.sub(r"(LogitsProcessor|LogitsWarper|Logits.*)$", "", type(processor).__name__)
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _tokens_to_tell(
    reading: Reading, stages: Sequence[Stage], picks: Sequence[tuple[int, int]]
) -> Tensor:
    """For every row the most probable tokens, before and after the processors, and its picks."""
    tops = [reading.top_tokens]
    if stages:
        tops.append(most(stages[-1].scores))
    picked: list[list[int]] = [[] for _ in range(len(reading.logits))]
    for row, token in picks:
        picked[row].append(token)
    widest = max(map(len, picked))
    # Rows are filled up with a token that is told of anyway.
    filler = reading.top_tokens[:, 0].tolist()
    filled = [ids + [filler[row]] * (widest - len(ids)) for row, ids in enumerate(picked)]
    return torch.cat([*tops, torch.tensor(filled, device=reading.logits.device)], dim=-1)


def _after(log_probs: Tensor) -> tuple[list[float], list[int]]:
    """Entropy, and how many tokens are left, once all processors have run."""
    return entropy(log_probs).tolist(), (log_probs > -torch.inf).count_nonzero(-1).tolist()


def _candidates(by_token: dict[int, list[float]], speller: Speller) -> tuple[Candidate, ...]:
    """The candidates, those most probable in the end first, then those most probable at first."""
    ordered = sorted(by_token.items(), key=lambda item: (-item[1][-1], -item[1][0]))
    candidates = []
    for token, log_probs in ordered:
        raw, *stages = (_probability(value) for value in log_probs)
        final = stages[-1] if stages else raw
        candidates.append(Candidate(speller.token(token), raw, tuple(stages), final))
    return tuple(candidates)


def _ranks(reading: Reading, picks: Sequence[tuple[int, int]]) -> list[int]:
    """Each picked token's place in the model's own order, from 1."""
    tops = reading.top_tokens.tolist()
    ranks = [tops[row].index(token) + 1 if token in tops[row] else 0 for row, token in picks]
    below = [index for index, rank in enumerate(ranks) if rank == 0]
    if below:
        at = torch.tensor([picks[index] for index in below], device=reading.logits.device)
        rows, tokens = at.unbind(-1)
        logits = reading.logits[rows]
        higher = (logits > logits.gather(-1, tokens[:, None])).sum(-1).tolist()
        for index, count in zip(below, higher, strict=True):
            ranks[index] = count + 1
    return ranks


def _probability(log_prob: float) -> float:
    """A probability in five significant digits; 0.0 means the token was cut."""
    return float(f"{math.exp(log_prob):.5g}")


def _round(value: float) -> float:
    return float(f"{value:.6g}")


def _finite(log_prob: float) -> float | None:
    return None if log_prob == -math.inf else round(log_prob, 6)
