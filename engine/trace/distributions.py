"""Turns the statistics of a step into the distributions of its trace.

A distribution shows what the model gave, what each processor made of it, and what was finally used.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from operator import attrgetter

from torch import Tensor

from engine.trace.gpu_statistics import BatchedStatistics
from engine.trace.lazy_tuple import LazyTuple
from engine.trace.statistics import Picks, RowProbabilities, Statistics, StatisticsRequest
from engine.trace.token_text import TokenDecoder
from engine.trace.types import Candidate, Distribution
from engine.trie.backend import NodeOutput, OutputRow


@dataclass(frozen=True, eq=False)
class Stage:
    """Scores as one processor left them, (rows, vocab)."""

    name: str
    scores: Tensor


@dataclass(frozen=True)
class Observation:
    """What the trace records of one picked token. ``raw`` and ``final`` are log-probabilities, as
    in `Step`."""

    distribution: Distribution
    raw: float | None
    final: float | None
    rank: int | None


def observe(
    output: NodeOutput, stages: Sequence[Stage], picks: Picks, token_decoder: TokenDecoder
) -> list[Observation]:
    """Observe picked tokens in the rows they were picked from."""
    output_rows = [OutputRow(output, row) for row in range(len(output.logits))]
    request = StatisticsRequest(output_rows, [stage.scores for stage in stages], picks)
    [statistics] = BatchedStatistics().compute([request])
    names = [stage.name for stage in stages]
    return observations(statistics, names, picks, output.logits.shape[-1], token_decoder)


def observations(
    compute: Callable[[], Statistics],
    stages: Sequence[str],
    picks: Picks,
    vocabulary: int,
    token_decoder: TokenDecoder,
) -> list[Observation]:
    """The same from statistics, with the names of the stages."""
    statistics, names = compute(), tuple(stages)
    cutoffs = _cutoffs(statistics)
    distributions = {
        row: Distribution(
            candidates=LazyTuple(partial(_candidates, found, statistics.final_top, token_decoder)),
            processors=names,
            raw_entropy=_round(statistics.raw_entropy[row]),
            final_entropy=_round(statistics.final_entropy[row]),
            kept=statistics.kept[-1][row] if names else vocabulary,
            raw_varentropy=_round(statistics.raw_varentropy[row]),
            kept_after=tuple(kept[row] for kept in statistics.kept),
            cutoffs=tuple(of_stage[row] for of_stage in cutoffs),
        )
        for row, found in statistics.rows.items()
    }
    observed = []
    for (row, token), rank in zip(picks, statistics.ranks, strict=True):
        found, per_token = statistics.rows[row], statistics.rows[row].per_token
        at = found.tokens.index(token) * per_token
        first, last = found.log_probs[at], found.log_probs[at + per_token - 1]
        used = None if last == -math.inf else round(last, 6)
        observed.append(Observation(distributions[row], round(first, 6), used, rank))
    return observed


def without_model(observation: Observation, given: Stage) -> Observation:
    """The same where the model's own distribution was not captured: ``given``, which the statistics
    were computed from, becomes the first stage."""
    found, kept = observation.distribution, int((given.scores > -math.inf).sum())
    distribution = Distribution(
        candidates=LazyTuple(partial(_without_raw, found.candidates)),
        processors=(given.name, *found.processors),
        raw_entropy=None,
        final_entropy=found.final_entropy,
        kept=found.kept if found.processors else kept,
        raw_varentropy=None,
        kept_after=(kept, *found.kept_after),
        cutoffs=(None, *found.cutoffs),
    )
    return Observation(distribution, raw=None, final=observation.final, rank=None)


def _without_raw(candidates: Sequence[Candidate]) -> list[Candidate]:
    return [
        candidate._replace(raw=None, stages=(candidate.raw or 0.0, *candidate.stages))
        for candidate in candidates
    ]


def _cutoffs(statistics: Statistics) -> list[list[float | None]]:
    """For every stage and row the probability of the least probable token kept, if any was cut."""
    cutoffs, given = [], statistics.given
    for kept, lowest in zip(statistics.kept, statistics.lowest, strict=True):
        # A stage that leaves nothing has no least probable token: its number is above 1.
        of_stage = zip(given, kept, lowest, strict=True)
        cutoffs.append(
            [_probability(low) if left < had and low <= 1 else None for had, left, low in of_stage]
        )
        given = kept
    return cutoffs


def processor_name(processor: object) -> str:
    """The name of a processor's setting: TopPLogitsWarper is top_p."""
    return _setting(type(processor).__name__)


@cache
def _setting(kind: str) -> str:
    name = re.sub(r"(LogitsProcessor|LogitsWarper|Logits.*)$", "", kind)
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _candidates(
    found: RowProbabilities, final_top: int, token_decoder: TokenDecoder
) -> tuple[Candidate, ...]:
    """The candidates, by their final probability, then by the model's own."""
    # The last tokens are the most probable ones after all stages. Where fewer were left, some of
    # them were cut and are no candidates.
    first, per_token = len(found.tokens) - final_top, found.per_token
    candidates: dict[int, Candidate] = {}
    noise = [None] * len(found.tokens) if found.noise is None else map(_noise, found.noise)
    for index, (id, random) in enumerate(zip(found.tokens, noise, strict=True)):
        probs = found.probs[index * per_token : (index + 1) * per_token]
        if id not in candidates and (index < first or probs[-1] > 0.0):
            own = tuple(map(_probability, probs))
            token = token_decoder.token(id)
            candidates[id] = Candidate(token, own[0], own[1:], own[-1], random)
    return tuple(sorted(candidates.values(), key=_by_final_then_raw, reverse=True))


_by_final_then_raw = attrgetter("final", "raw")


def _probability(value: float) -> float:
    """Five significant digits keep files small; 0 stays 0."""
    return float(f"{value:.5g}")


def _noise(value: float) -> float | None:
    return None if math.isnan(value) else _round(value)


def _round(value: float) -> float:
    return float(f"{value:.6g}")
