"""Distributions for the trace: what the model said, what each processor made of it, what was used.

Knows how the numbers of a few rows become a step's story. Refuses to know who chose and why.
Nothing here changes a score.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from operator import attrgetter

import torch
from torch import Tensor

from engine.trace.gpu_statistics import Measuring
from engine.trace.lazy_tuple import LazyTuple
from engine.trace.statistics import Numbers, Request, Told
from engine.trace.token_text import Speller
from engine.trace.types import Candidate, Distribution
from engine.trie.backend import Place, Reading

GREEN_LIST = "watermark"  # the stage of WatermarkLogitsProcessor; SynthID's has another name


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
    places = [Place(reading, row) for row in range(len(reading.logits))]
    [numbers] = Measuring().measured([Request(places, [own.scores for own in stages], picks)])
    names = [stage.name for stage in stages]
    return observed(numbers, names, picks, reading.logits.shape[-1], speller)


def observed(
    measured: Callable[[], Numbers],
    stages: Sequence[str],
    picks: Sequence[tuple[int, int]],
    vocabulary: int,
    speller: Speller,
) -> list[Observed]:
    """The same of rows that have been measured, by the names of their stages."""
    numbers, names = measured(), tuple(stages)
    cutoffs = _cutoffs(numbers)
    distributions = {
        row: Distribution(
            candidates=LazyTuple(partial(_candidates, told, numbers.last, speller)),
            processors=names,
            raw_entropy=_round(numbers.raw_entropy[row]),
            final_entropy=_round(numbers.final_entropy[row]),
            kept=numbers.kept[-1][row] if names else vocabulary,
            raw_varentropy=_round(numbers.raw_varentropy[row]),
            kept_after=tuple(kept[row] for kept in numbers.kept),
            cutoffs=tuple(of_stage[row] for of_stage in cutoffs),
        )
        for row, told in numbers.told.items()
    }
    seen = []
    for (row, token), rank in zip(picks, numbers.ranks, strict=True):
        told, each = numbers.told[row], numbers.told[row].each
        at = told.tokens.index(token) * each
        first, last = told.log_probs[at], told.log_probs[at + each - 1]
        used = None if last == -math.inf else round(last, 6)
        seen.append(Observed(distributions[row], round(first, 6), used, rank))
    return seen


def _cutoffs(numbers: Numbers) -> list[list[float | None]]:
    """For every stage the probability of the least probable token it kept, where it cut any."""
    cutoffs, given = [], numbers.given
    for kept, lowest in zip(numbers.kept, numbers.lowest, strict=True):
        # Where nothing is left of what there was, there is no least probable token.
        of_stage = zip(given, kept, lowest, strict=True)
        cutoffs.append(
            [_probability(low) if left < had and low <= 1 else None for had, left, low in of_stage]
        )
        given = kept
    return cutoffs


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
    return _setting(type(processor).__name__)


@cache
def _setting(kind: str) -> str:
    name = re.sub(r"(LogitsProcessor|LogitsWarper|Logits.*)$", "", kind)
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _candidates(told: Told, after: int, speller: Speller) -> tuple[Candidate, ...]:
    """The candidates, those most probable in the end first, then those most probable at first."""
    # The last tokens are the most probable ones after the processors. Where fewer are left, there
    # are some among them that were cut and never mattered.
    mattered, each = len(told.tokens) - after, told.each
    found: dict[int, Candidate] = {}
    for place, id in enumerate(told.tokens):
        of_token = told.probs[place * each : (place + 1) * each]
        if id not in found and (place < mattered or of_token[-1] > 0.0):
            own = tuple(map(_probability, of_token))
            found[id] = Candidate(speller.token(id), own[0], own[1:], own[-1])
    return tuple(sorted(found.values(), key=_by_final_then_raw, reverse=True))


_by_final_then_raw = attrgetter("final", "raw")


def _probability(value: float) -> float:
    """In five significant digits, so that files stay small; 0 stays 0."""
    return float(f"{value:.5g}")


def _round(value: float) -> float:
    return float(f"{value:.6g}")
