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
GREEN_LIST = "watermark"  # the stage of WatermarkLogitsProcessor; SynthID's has another name
BEYOND = 1e30  # further from 0 than any log-probability


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


class _Cuts(NamedTuple):
    """What each stage cut, row by row."""

    kept: list[list[int]]  # (stages, rows) how many tokens were left
    cutoffs: list[list[float | None]]  # (stages, rows)


def observe(
    reading: Reading,
    stages: Sequence[Stage],
    picks: Sequence[tuple[int, int]],
    speller: Speller,
) -> list[Observed]:
    """What to tell of each picked (row, token), read off the rows they were picked from."""
    before = _before(reading, stages)
    cuts = _cuts(stages, before)
    final = _final(stages[-1].scores, max(cuts.kept[-1])) if stages else None
    tokens = _tokens_to_tell(reading, final, picks)  # (rows, tokens)
    told = _log_probs(before, stages, final, tokens)  # (rows, tokens, 1 + stages)
    ids, log_probs, probs = tokens.tolist(), told.tolist(), told.exp().tolist()
    raw_entropy, raw_varentropy = torch.stack([reading.entropy, reading.varentropy]).tolist()
    after = final.top.shape[-1] if final else 0
    distributions = {
        row: Distribution(
            candidates=_candidates(ids[row], probs[row], after, speller),
            processors=tuple(stage.name for stage in stages),
            raw_entropy=_round(raw_entropy[row]),
            final_entropy=_round(final.entropy[row] if final else raw_entropy[row]),
            kept=cuts.kept[-1][row] if final else reading.logits.shape[-1],
            raw_varentropy=_round(raw_varentropy[row]),
            kept_after=tuple(kept[row] for kept in cuts.kept),
            cutoffs=tuple(cutoffs[row] for cutoffs in cuts.cutoffs),
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


def green(
    given: Tensor, stages: Sequence[Stage], picks: Sequence[tuple[int, int]]
) -> list[dict[str, bool]]:
    """Of each picked (row, token) a note whether a green-list watermark raised its score; none
    where there is no such watermark. ``given`` is what the first stage got."""
    before = given
    for stage in stages:
        if stage.name == GREEN_LIST:
            rows, tokens = torch.tensor(picks, device=before.device).unbind(-1)
            raised = stage.scores[rows, tokens] > before[rows, tokens]
            return [{"green": flag} for flag in raised.tolist()]
        before = stage.scores
    return [{} for _ in picks]


def processor_name(processor: object) -> str:
    """The setting's own word for a processor: TopPLogitsWarper is top_p."""
    name = re.sub(r"(LogitsProcessor|LogitsWarper|Logits.*)$", "", type(processor).__name__)
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _before(reading: Reading, stages: Sequence[Stage]) -> list[Tensor]:
    """The log-probabilities each stage was given, (rows, vocab); without any, the model's own."""
    return [reading.log_probs, *(stage.scores.log_softmax(-1) for stage in stages[:-1])]


def _cuts(stages: Sequence[Stage], before: Sequence[Tensor]) -> _Cuts:
    """Count what each stage left; where it cut something, find the least probable token it kept."""
    if not stages:
        return _Cuts([], [])
    alive = [before[0] > -torch.inf, *(stage.scores > -torch.inf for stage in stages)]
    given, *kept = torch.stack([mask.sum(-1, dtype=torch.int32) for mask in alive]).tolist()
    cutoffs = []
    for stage, after in enumerate(kept):
        cut = after != given
        lowest = _lowest(before[stage], alive[stage] & alive[stage + 1]) if cut else after
        # Where nothing is left of what there was, there is no least probable token.
        pairs = zip(given, after, lowest, strict=True)
        cutoffs.append([low if left < had and low <= 1 else None for had, left, low in pairs])
        given = after
    return _Cuts(kept, cutoffs)


def _lowest(log_probs: Tensor, kept: Tensor) -> list[float]:
    """The smallest probability of a kept token in each row; above 1 where there is none."""
    # To lift the others out of the way takes a tenth of the time that leaving them out does.
    others = (~kept).view(torch.uint8)
    lowest = log_probs.clamp(min=-BEYOND).add_(others, alpha=2 * BEYOND).amin(-1)
    return [_probability(value) for value in lowest.clamp(max=1).exp().tolist()]


def _final(scores: Tensor, kept: int) -> _Final:
    """Read what the processors left: the few tokens there are, or the whole row."""
    few = kept <= FEW < scores.shape[-1]
    top = most(scores, FEW if few else TOP)
    values = scores.gather(-1, top)
    log_probs = (values if few else scores).log_softmax(-1)
    best = log_probs[:, :1] if few else log_probs.gather(-1, top[:, :1])
    return _Final(
        top=top[:, :TOP],
        log_normalizer=values[:, :1] - best,
        entropy=entropy(log_probs).tolist(),
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
    before: Sequence[Tensor], stages: Sequence[Stage], final: _Final | None, tokens: Tensor
) -> Tensor:
    """Log-probabilities of some tokens, on the host: the model's own, then after each stage."""
    told = [log_probs.gather(-1, tokens) for log_probs in before]
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
