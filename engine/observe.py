"""Distributions for the trace: what the model said, what each processor made of it, what was used.

Knows how rows of scores become a few numbers. Refuses to know who chose and why. Nothing here
changes a score, and all of it is paid for on every tick, so it reads a row as seldom as it can.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from engine.backend import TOP, Reading, entropy, most
from engine.tokens import Speller
from engine.trace import Candidate, Distribution

FEW = 64  # where no more tokens than this are left, they are read instead of the whole row


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


class _Final(NamedTuple):
    """What the processors left, row by row."""

    top: Tensor  # (rows, TOP) the most probable tokens, most probable first
    log_normalizer: Tensor  # (rows, 1) what a score is above its log-probability
    entropy: list[float]
    kept: list[int]  # how many tokens were not cut


def observe(
    reading: Reading,
    stages: Sequence[Stage],
    picks: Sequence[tuple[int, int]],
    speller: Speller,
) -> list[Observed]:
    """What to tell of each picked (row, token), read off the rows they were picked from."""
    final = _final(stages[-1].scores) if stages else None
    tokens = _tokens_to_tell(reading, final, picks)  # (rows, tokens)
    told = _log_probs(reading, stages, final, tokens)  # (rows, tokens, 1 + stages)
    ids, log_probs, probs = tokens.tolist(), told.tolist(), told.exp().tolist()
    raw_entropy = reading.entropy.tolist()
    after = final.top.shape[-1] if final else 0
    distributions = {
        row: Distribution(
            candidates=_candidates(ids[row], probs[row], after, speller),
            processors=tuple(stage.name for stage in stages),
            raw_entropy=_round(raw_entropy[row]),
            final_entropy=_round(final.entropy[row] if final else raw_entropy[row]),
            kept=final.kept[row] if final else reading.logits.shape[-1],
        )
        for row in dict.fromkeys(row for row, _ in picks)
    }
    observed = []
    for (row, token), rank in zip(picks, _ranks(reading, picks), strict=True):
        of_token = log_probs[row][ids[row].index(token)]
        cut = of_token[-1] == -math.inf
        used = None if cut else round(of_token[-1], 6)
        observed.append(Observed(distributions[row], round(of_token[0], 6), used, rank))
    return observed


def processor_name(processor: object) -> str:
    """The setting's own word for a processor: TopPLogitsWarper is top_p."""
    name = re.sub(r"(LogitsProcessor|LogitsWarper|Logits.*)$", "", type(processor).__name__)
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _final(scores: Tensor) -> _Final:
    """Read what the processors left: the few tokens there are, or the whole row."""
    top = most(scores, FEW)
    values = scores.gather(-1, top)
    few = top.shape[-1] == FEW and bool((values[:, -1] == -torch.inf).all())
    read = values if few else scores
    log_probs = read.log_softmax(-1)
    best = log_probs[:, :1] if few else log_probs.gather(-1, top[:, :1])
    return _Final(
        top=top[:, :TOP],
        log_normalizer=values[:, :1] - best,
        entropy=entropy(log_probs).tolist(),
        kept=(read > -torch.inf).count_nonzero(-1).tolist(),
    )


def _tokens_to_tell(
    reading: Reading, final: _Final | None, picks: Sequence[tuple[int, int]]
) -> Tensor:
    """For every row the most probable tokens, before and after the processors, and its picks."""
    picked: list[list[int]] = [[] for _ in range(len(reading.logits))]
    for row, token in picks:
        picked[row].append(token)
    widest = max(map(len, picked))
    # Rows are filled up with a token that is told of anyway.
    filler = reading.top_tokens[:, 0].tolist()
    filled = [ids + [filler[row]] * (widest - len(ids)) for row, ids in enumerate(picked)]
    tops = [reading.top_tokens, *([final.top] if final else [])]
    return torch.cat([torch.tensor(filled, device=reading.logits.device), *tops], dim=-1)


def _log_probs(
    reading: Reading, stages: Sequence[Stage], final: _Final | None, tokens: Tensor
) -> Tensor:
    """Log-probabilities of some tokens, on the host: the model's own, then after each stage."""
    told = [reading.log_probs.gather(-1, tokens)]
    told += [stage.scores.log_softmax(-1).gather(-1, tokens) for stage in stages[:-1]]
    if final:
        told.append(stages[-1].scores.gather(-1, tokens) - final.log_normalizer)
    return torch.stack(told, dim=-1).cpu()


def _candidates(
    ids: Sequence[int], probs: Sequence[list[float]], after: int, speller: Speller
) -> tuple[Candidate, ...]:
    """The candidates, those most probable in the end first, then those most probable at first."""
    # The last tokens are the most probable ones after the processors. Where fewer are left, there
    # are some among them that were cut and never mattered.
    mattered = len(ids) - after
    by_token = {
        id: [_probability(value) for value in of_token]
        for place, (id, of_token) in enumerate(zip(ids, probs, strict=True))
        if place < mattered or of_token[-1] > 0.0
    }
    ordered = sorted(by_token.items(), key=lambda item: (-item[1][-1], -item[1][0]))
    return tuple(
        Candidate(speller.token(id), raw, tuple(stages), stages[-1] if stages else raw)
        for id, (raw, *stages) in ordered
    )


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


def _probability(value: float) -> float:
    """In five significant digits, so that files stay small; 0 stays 0."""
    return float(f"{value:.5g}")


def _round(value: float) -> float:
    return float(f"{value:.6g}")
