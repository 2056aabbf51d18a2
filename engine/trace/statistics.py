"""The statistics of a step's distributions: probabilities, ranks, entropies and cut-offs.

Computed from rows of scores. This module computes them on a CPU, where it reads a row as seldom as
possible, and defines what `engine.trace.gpu_statistics` computes in batches on a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from engine.trie.backend import TOP, Best, NodeOutput, OutputRow, entropy, gather, most

FEW = 64  # where no more tokens than this are left, only they are read instead of the whole row
BEYOND = 1e30  # further from 0 than any log-probability

Picks = Sequence[tuple[int, int]]  # (row, token)


class RowProbabilities(NamedTuple):
    """The tokens to record for one row, and their probabilities at every stage in one flat list:
    for each token the model's own, then one after each stage."""

    tokens: list[int]  # the picked ones, then the most probable before and after all stages
    log_probs: list[float]  # at least those of the picked tokens, (picked × (1 + stages))
    probs: list[float]  # (tokens × (1 + stages))
    noise: list[float] | None = None  # (tokens,) the random numbers of a draw, NaN = no draw here

    @property
    def per_token(self) -> int:
        """How many probabilities a token has."""
        return len(self.probs) // len(self.tokens)


class Statistics(NamedTuple):
    """The statistics of some rows."""

    rows: dict[int, RowProbabilities]  # of the rows in which a token was picked
    final_top: int  # how many of a row's last tokens are its most probable after all stages
    raw_entropy: list[float]
    raw_varentropy: list[float]
    final_entropy: list[float]
    kept: list[list[int]]  # (stages, rows) how many tokens were left
    lowest: list[list[float]]  # (stages, rows) the smallest probability kept, where any was cut
    given: list[int]  # (rows,) how many tokens the first stage was given
    ranks: list[int]  # of each pick in the model's own order, from 1


class StatisticsRequest(NamedTuple):
    """Rows of scores, and the tokens that were picked there."""

    output_rows: Sequence[OutputRow]  # where the model's output for each row is
    stages: Sequence[Tensor]  # the scores after each stage, (rows, vocab)
    picks: Picks
    noise: Tensor | None = None  # the random numbers of a draw, (rows, vocab)


class KnownStatistics(NamedTuple):
    """Statistics that the host has already, because a decision was made with them."""

    best: Best
    # For further (row, token): its log-probability, and how many tokens are more probable.
    further: Mapping[tuple[int, int], tuple[float, int]] = MappingProxyType({})

    def cover(self, picks: Picks) -> bool:
        """Whether they are all that is recorded for these picks."""
        tokens = self.best.tokens
        return all(pick in self.further or pick[1] in tokens[pick[0]] for pick in picks)

    def statistics(self, picks: Picks) -> Statistics:
        """The statistics of these picks."""
        best, rows, ranks = self.best, dict[int, RowProbabilities](), list[int]()
        for row in picked_rows(picks):
            tokens, log_probs = [*best.tokens[row]], [*best.log_probs[row]]
            for token in (token for at, token in picks if at == row and token not in tokens):
                tokens.append(token)
                log_probs.append(self.further[row, token][0])
            rows[row] = RowProbabilities(tokens, log_probs, torch.tensor(log_probs).exp().tolist())
        for row, token in picks:
            tokens = best.tokens[row]
            higher = tokens.index(token) if token in tokens else self.further[row, token][1]
            ranks.append(1 + higher)
        return Statistics(
            rows=rows,
            final_top=0,
            raw_entropy=best.entropy,
            raw_varentropy=best.varentropy,
            final_entropy=best.entropy,
            kept=[],
            lowest=[],
            given=[],
            ranks=ranks,
        )


class Final(NamedTuple):
    """What the last stage left, row by row."""

    top: Tensor  # (rows, TOP) the most probable tokens, most probable first
    log_normalizer: Tensor  # (rows, 1) the difference of a score and its log-probability
    entropy: Tensor  # (rows,)


def compute(request: StatisticsRequest) -> Statistics:
    """Compute statistics on a CPU, each only where it is needed."""
    output_rows, stages, picks, noise = request
    output = gather(output_rows)
    before = log_probs_before(output, stages)
    given, kept, lowest = _cuts(stages, before)
    final = (
        final_of(stages[-1], few=max(kept[-1]) <= FEW < stages[-1].shape[-1]) if stages else None
    )
    picked = torch.tensor(picked_by_row(request))
    tokens = recorded_tokens(output, final, picked)
    log_probs = recorded_log_probs(before, stages, final, tokens)
    raw_entropy, raw_varentropy = torch.stack([output.entropy, output.varentropy]).tolist()
    return Statistics(
        rows=_by_row(picks, picked.shape[-1], tokens, log_probs, noise),
        final_top=final.top.shape[-1] if final else 0,
        raw_entropy=raw_entropy,
        raw_varentropy=raw_varentropy,
        final_entropy=final.entropy.tolist() if final else raw_entropy,
        kept=kept,
        lowest=lowest.exp().tolist(),
        given=given,
        ranks=_ranks(output, picks),
    )


def compute_tables(
    picked: Tensor, output: NodeOutput, *stages: Tensor, noise: Tensor | None = None
) -> list[Tensor]:
    """All statistics of some rows as tables on their device, without a look at any value."""
    before = log_probs_before(output, stages)
    final = final_of(stages[-1], few=False) if stages else None
    tokens = recorded_tokens(output, final, picked)
    own = output.logits.gather(-1, tokens[:, : picked.shape[-1]])  # (rows, picked)
    tables = [
        tokens,
        recorded_log_probs(before, stages, final, tokens),
        torch.stack([output.entropy, output.varentropy]),
        (output.logits[:, None] > own[:, :, None]).sum(-1),
    ]
    if final:
        alive = [before[0] > -torch.inf, *(scores > -torch.inf for scores in stages)]
        lowest = [
            least_kept(given, had & left)
            for given, had, left in zip(before, alive[:-1], alive[1:], strict=True)
        ]
        tables += [torch.stack(alive).sum(-1), torch.stack(lowest), final.entropy[None]]
    return tables if noise is None else [noise.gather(-1, tokens), *tables]


def picked_rows(picks: Picks) -> list[int]:
    """The rows in which a token was picked: a tree has many in which none was."""
    return list(dict.fromkeys(row for row, _ in picks))


def _by_row(
    picks: Picks, width: int, tokens: Tensor, log_probs: Tensor, noise: Tensor | None
) -> dict[int, RowProbabilities]:
    rows = picked_rows(picks)
    read = log_probs[rows]
    parts = [tokens[rows], read[:, :width], read.exp()]
    if noise is not None:
        parts.append(noise[rows].gather(-1, parts[0]))
    probabilities = map(RowProbabilities, *(part.flatten(1).tolist() for part in parts))
    return dict(zip(rows, probabilities, strict=True))


def log_probs_before(output: NodeOutput, stages: Sequence[Tensor]) -> list[Tensor]:
    """The log-probabilities that each stage was given, (rows, vocab); without stages, the model's
    own."""
    return [output.log_probs, *(scores.log_softmax(-1) for scores in stages[:-1])]


def _cuts(
    stages: Sequence[Tensor], before: Sequence[Tensor]
) -> tuple[list[int], list[list[int]], Tensor]:
    """Count what each stage left; where it cut a token, find the least probable one it kept."""
    if not stages:
        return [], [], torch.empty(0)
    alive = [before[0] > -torch.inf, *(scores > -torch.inf for scores in stages)]
    first, *kept = torch.stack([mask.sum(-1, dtype=torch.int32) for mask in alive]).tolist()
    lowest, given = [], first
    for stage, after in enumerate(kept):
        cut = after != given
        still = alive[stage] & alive[stage + 1]
        lowest.append(least_kept(before[stage], still) if cut else torch.ones(len(after)))
        given = after
    return first, kept, torch.stack(lowest)


def least_kept(log_probs: Tensor, kept: Tensor) -> Tensor:
    """The smallest log-probability of a kept token in each row; above 0 where none was kept."""
    # Adding a large number to the others takes a tenth of the time of masking them.
    others = (~kept).view(torch.uint8)
    return log_probs.clamp(min=-BEYOND).add_(others, alpha=2 * BEYOND).amin(-1).clamp(max=1)


def final_of(scores: Tensor, *, few: bool) -> Final:
    """What the last stage left, read off the ``few`` tokens there are or off the whole row."""
    top = most(scores, FEW if few else TOP)
    values = scores.gather(-1, top)
    log_probs = (values if few else scores).log_softmax(-1)
    best = log_probs[:, :1] if few else log_probs.gather(-1, top[:, :1])
    return Final(top[:, :TOP], values[:, :1] - best, entropy(log_probs))


def picked_by_row(request: StatisticsRequest) -> list[list[int]]:
    """The picked tokens of every row, padded with -1."""
    picked: list[list[int]] = [[] for _ in request.output_rows]
    for row, token in request.picks:
        picked[row].append(token)
    widest = max(map(len, picked))
    return [ids + [-1] * (widest - len(ids)) for ids in picked]


def recorded_tokens(output: NodeOutput, final: Final | None, picked: Tensor) -> Tensor:
    """For every row its picks and the most probable tokens, before and after the stages."""
    # Padding becomes a token that is recorded anyway.
    filled = torch.where(picked < 0, output.top_tokens[:, :1], picked)
    return torch.cat([filled, output.top_tokens, *([final.top] if final else [])], dim=-1)


def recorded_log_probs(
    before: Sequence[Tensor], stages: Sequence[Tensor], final: Final | None, tokens: Tensor
) -> Tensor:
    """Log-probabilities of some tokens: the model's own, then after each stage."""
    values = [log_probs.gather(-1, tokens) for log_probs in before]
    if final:
        values.append(stages[-1].gather(-1, tokens) - final.log_normalizer)
    return torch.stack(values, dim=-1)


def _ranks(output: NodeOutput, picks: Picks) -> list[int]:
    """Each picked token's rank in the model's own order, from 1."""
    tops = output.top_tokens.tolist()
    ranks = [tops[row].index(token) + 1 if token in tops[row] else 0 for row, token in picks]
    below = [index for index, rank in enumerate(ranks) if rank == 0]
    if below:
        rows, tokens = torch.tensor([picks[index] for index in below]).unbind(-1)
        logits = output.logits[rows]
        higher = (logits > logits.gather(-1, tokens[:, None])).sum(-1).tolist()
        for index, count in zip(below, higher, strict=True):
            ranks[index] = count + 1
    return ranks
