"""The numbers of a step's distributions, read off rows of scores.

A CPU reads a row as seldom as it can, and no row that nothing asks for. Knows the numbers. Refuses
to know what they are told as, and how a GPU is asked for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from engine.trie.backend import TOP, Best, Place, Reading, entropy, gather, most

FEW = 64  # where no more tokens than this are left, they are read instead of the whole row
BEYOND = 1e30  # further from 0 than any log-probability

Picks = Sequence[tuple[int, int]]  # (row, token)


class Told(NamedTuple):
    """The tokens to tell of in one row; of each the model's own number, then one after each
    stage, all in one list."""

    tokens: list[int]  # the picked and the model's best, then the best in the end
    log_probs: list[float]  # at least of the picked, (picked × (1 + stages))
    probs: list[float]  # (tokens × (1 + stages))

    @property
    def each(self) -> int:
        """How many numbers a token has."""
        return len(self.probs) // len(self.tokens)


class Numbers(NamedTuple):
    """What there is to tell of some rows."""

    told: dict[int, Told]  # of the rows in which something was picked
    last: int  # how many of the tokens are there as the best in the end
    raw_entropy: list[float]
    raw_varentropy: list[float]
    final_entropy: list[float]
    kept: list[list[int]]  # (stages, rows) how many tokens were left
    lowest: list[list[float]]  # (stages, rows) the least probability kept, where any was cut
    given: list[int]  # (rows,) how many tokens the first stage got
    ranks: list[int]  # of each pick in the model's own order, from 1


class Request(NamedTuple):
    """Rows of scores, and the tokens that were picked there."""

    places: Sequence[Place]  # where the model said what each row began as
    stages: Sequence[Tensor]  # the scores after each, (rows, vocab)
    picks: Picks


class Known(NamedTuple):
    """What the host was told of some rows when something was decided there: nobody need be asked
    again."""

    best: Best
    # Of some (row, token), which may be others: its log-probability, and how many are higher.
    further: Mapping[tuple[int, int], tuple[float, int]] = MappingProxyType({})

    def has(self, picks: Picks) -> bool:
        """Whether it is all there is to tell of what was picked."""
        tokens = self.best.tokens
        return all(pick in self.further or pick[1] in tokens[pick[0]] for pick in picks)

    def numbers(self, picks: Picks) -> Numbers:
        """What there is to tell."""
        best, told, ranks = self.best, dict[int, Told](), list[int]()
        for row in rows_of(picks):
            tokens, own = [*best.tokens[row]], [*best.log_probs[row]]
            for token in (token for at, token in picks if at == row and token not in tokens):
                tokens.append(token)
                own.append(self.further[row, token][0])
            told[row] = Told(tokens, own, torch.tensor(own).exp().tolist())
        for row, token in picks:
            tokens = best.tokens[row]
            higher = tokens.index(token) if token in tokens else self.further[row, token][1]
            ranks.append(1 + higher)
        return Numbers(
            told=told,
            last=0,
            raw_entropy=best.entropy,
            raw_varentropy=best.varentropy,
            final_entropy=best.entropy,
            kept=[],
            lowest=[],
            given=[],
            ranks=ranks,
        )


class Final(NamedTuple):
    """What the processors left, row by row."""

    top: Tensor  # (rows, TOP) the most probable tokens, most probable first
    log_normalizer: Tensor  # (rows, 1) what a score is above its log-probability
    entropy: Tensor  # (rows,)


def in_turn(request: Request) -> Numbers:
    """Look at what there is to look at, one thing after the other."""
    places, stages, picks = request
    reading = gather(places)
    before = log_probs_before(reading, stages)
    given, kept, lowest = _cuts(stages, before)
    final = (
        final_of(stages[-1], few=max(kept[-1]) <= FEW < stages[-1].shape[-1]) if stages else None
    )
    picked = torch.tensor(picked_by_row(request))
    tokens = tokens_told(reading, final, picked)
    log_probs = log_probs_told(before, stages, final, tokens)
    raw_entropy, raw_varentropy = torch.stack([reading.entropy, reading.varentropy]).tolist()
    return Numbers(
        told=_by_row(picks, picked.shape[-1], tokens, log_probs),
        last=final.top.shape[-1] if final else 0,
        raw_entropy=raw_entropy,
        raw_varentropy=raw_varentropy,
        final_entropy=final.entropy.tolist() if final else raw_entropy,
        kept=kept,
        lowest=lowest.exp().tolist(),
        given=given,
        ranks=_ranks(reading, picks),
    )


def asked_of(picked: Tensor, reading: Reading, *stages: Tensor) -> list[Tensor]:
    """All numbers of some rows, on their device, as tables: (something, its numbers…)."""
    before = log_probs_before(reading, stages)
    final = final_of(stages[-1], few=False) if stages else None
    tokens = tokens_told(reading, final, picked)
    own = reading.logits.gather(-1, tokens[:, : picked.shape[-1]])  # (rows, picked)
    asked = [
        tokens,
        log_probs_told(before, stages, final, tokens),
        torch.stack([reading.entropy, reading.varentropy]),
        (reading.logits[:, None] > own[:, :, None]).sum(-1),
    ]
    if final:
        alive = [before[0] > -torch.inf, *(scores > -torch.inf for scores in stages)]
        lowest = [
            least_kept(given, had & left)
            for given, had, left in zip(before, alive[:-1], alive[1:], strict=True)
        ]
        asked += [torch.stack(alive).sum(-1), torch.stack(lowest), final.entropy[None]]
    return asked


def rows_of(picks: Picks) -> list[int]:
    """The rows in which something was picked: a tree has many in which nothing was."""
    return list(dict.fromkeys(row for row, _ in picks))


def _by_row(picks: Picks, width: int, tokens: Tensor, log_probs: Tensor) -> dict[int, Told]:
    rows = rows_of(picks)
    read = log_probs[rows]
    of_each = (tokens[rows], read[:, :width], read.exp())
    told = map(Told, *(numbers.flatten(1).tolist() for numbers in of_each))
    return dict(zip(rows, told, strict=True))


def log_probs_before(reading: Reading, stages: Sequence[Tensor]) -> list[Tensor]:
    """The log-probabilities each stage was given, (rows, vocab); without any, the model's own."""
    return [reading.log_probs, *(scores.log_softmax(-1) for scores in stages[:-1])]


def _cuts(
    stages: Sequence[Tensor], before: Sequence[Tensor]
) -> tuple[list[int], list[list[int]], Tensor]:
    """Count what each stage left; where it cut something, find the least probable token it kept."""
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
    """The smallest log-probability of a kept token in each row; above 0 where there is none."""
    # To lift the others out of the way takes a tenth of the time that leaving them out does.
    others = (~kept).view(torch.uint8)
    return log_probs.clamp(min=-BEYOND).add_(others, alpha=2 * BEYOND).amin(-1).clamp(max=1)


def final_of(scores: Tensor, *, few: bool) -> Final:
    """Read what the processors left: the few tokens there are, or the whole row."""
    top = most(scores, FEW if few else TOP)
    values = scores.gather(-1, top)
    log_probs = (values if few else scores).log_softmax(-1)
    best = log_probs[:, :1] if few else log_probs.gather(-1, top[:, :1])
    return Final(top[:, :TOP], values[:, :1] - best, entropy(log_probs))


def picked_by_row(request: Request) -> list[list[int]]:
    """The picked tokens of every row, filled up with -1."""
    picked: list[list[int]] = [[] for _ in request.places]
    for row, token in request.picks:
        picked[row].append(token)
    widest = max(map(len, picked))
    return [ids + [-1] * (widest - len(ids)) for ids in picked]


def tokens_told(reading: Reading, final: Final | None, picked: Tensor) -> Tensor:
    """For every row the most probable tokens, before and after the processors, and its picks."""
    # Rows are filled up with a token that is told of anyway.
    filled = torch.where(picked < 0, reading.top_tokens[:, :1], picked)
    return torch.cat([filled, reading.top_tokens, *([final.top] if final else [])], dim=-1)


def log_probs_told(
    before: Sequence[Tensor], stages: Sequence[Tensor], final: Final | None, tokens: Tensor
) -> Tensor:
    """Log-probabilities of some tokens: the model's own, then after each stage."""
    told = [log_probs.gather(-1, tokens) for log_probs in before]
    if final:
        told.append(stages[-1].gather(-1, tokens) - final.log_normalizer)
    return torch.stack(told, dim=-1)


def _ranks(reading: Reading, picks: Picks) -> list[int]:
    """Each picked token's place in the model's own order, from 1."""
    tops = reading.top_tokens.tolist()
    ranks = [tops[row].index(token) + 1 if token in tops[row] else 0 for row, token in picks]
    below = [index for index, rank in enumerate(ranks) if rank == 0]
    if below:
        rows, tokens = torch.tensor([picks[index] for index in below]).unbind(-1)
        logits = reading.logits[rows]
        higher = (logits > logits.gather(-1, tokens[:, None])).sum(-1).tolist()
        for index, count in zip(below, higher, strict=True):
            ranks[index] = count + 1
    return ranks
