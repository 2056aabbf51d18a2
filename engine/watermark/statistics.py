"""Watermark statistics: z-scores, p-values, and verdicts against the null hypothesis of no mark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributions import Binomial

# The default z-score above which a text counts as marked, as in transformers' `WatermarkDetector`.
Z_THRESHOLD = 3.0

MARKED, UNMARKED, TOO_SHORT = "marked", "not marked", "too short to say"


@dataclass(frozen=True)
class NullHypothesis:
    """What an unmarked token contributes to a score, a value between 0 and 1."""

    mean: float
    variance: float
    share: float  # the exact probability of a green token, or of a g-value of 1
    coins: int = 1  # Bernoulli trials per token: its colour, or its g-values
    layered: bool = False  # whether they are g-values, which are weighted by layer


@dataclass(frozen=True)
class Score:
    """The score of some tokens.

    ``z_score`` and ``p_value`` use the normal approximation, for green lists as transformers does.
    ``exact_p`` is the probability of at least as many green tokens, or g-values of 1, in an
    unmarked text.
    """

    tokens_scored: int
    green_tokens: int
    green_fraction: float
    z_score: float
    p_value: float
    exact_p: float


def score_values(values: Sequence[float], ones: int, null: NullHypothesis) -> Score:
    """The score of tokens from their values and from how many of their trials gave 1."""
    scored = len(values)
    green = sum(value > null.mean for value in values)
    z = z_score(math.fsum(values), scored, null)
    return Score(
        tokens_scored=scored,
        green_tokens=green,
        green_fraction=green / scored if scored else 0.0,
        z_score=z,
        p_value=normal_tail(z) if null.layered else p_value(z),
        exact_p=binomial_tail(ones, scored * null.coins, null.share),
    )


def z_score(total: float, scored: int, null: NullHypothesis) -> float:
    """How many standard deviations the sum of values is above its expectation; 0 without tokens."""
    if not scored:
        return 0.0
    return (total - null.mean * scored) / math.sqrt(scored * null.variance)


def p_value(z: float) -> float:
    """The approximation of the normal tail that `WatermarkDetector` uses."""
    sign = (z > 0) - (z < 0)
    return 1 - 0.5 * (1 + sign * (1 - math.exp(-2 * z**2 / math.pi)))


def normal_tail(z: float) -> float:
    """P(X > z) for a standard normal X."""
    return 0.5 * math.erfc(z / math.sqrt(2))


def binomial_tail(successes: int, trials: int, probability: float) -> float:
    """P(X >= successes) for a binomial X, in double precision."""
    if successes <= 0:
        return 1.0
    if successes > trials or probability <= 0:
        return 0.0
    if probability >= 1:
        return 1.0
    counts = torch.arange(successes, trials + 1, dtype=torch.float64)
    each = torch.tensor(probability, dtype=torch.float64)
    binomial: Any = Binomial(trials, each, validate_args=False)  # torch has no types here
    return min(1.0, float(binomial.log_prob(counts).logsumexp(0).exp()))


def verdict(score: Score, independent: Score, z_threshold: float, null: NullHypothesis) -> str:
    """The verdict at a threshold.

    A text is marked if its score and the score of its ``independent`` tokens are both above the
    threshold. It is too short if even all green independent tokens would not be, by the normal
    approximation or by the exact tail.
    """
    scored = independent.tokens_scored
    best = z_score(scored, scored, null)
    exact = binomial_tail(scored * null.coins, scored * null.coins, null.share)
    if not scored or best <= z_threshold or exact > normal_tail(z_threshold):
        return TOO_SHORT
    return MARKED if min(score.z_score, independent.z_score) > z_threshold else UNMARKED
