"""What counts say against chance: z-scores, tails, and when there is too little to say.

Knows numbers only. Refuses to know tokens, texts and schemes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributions import Binomial

MARKED, UNMARKED, TOO_SHORT = "marked", "not marked", "too short to say"


@dataclass(frozen=True)
class Chance:
    """What an unmarked token adds to a score, a value between 0 and 1: its mean and variance."""

    mean: float
    variance: float
    share: float  # how probable a green token, or a g-value of 1, is exactly
    coins: int = 1  # that decide a token: its colour, or its g-values
    layered: bool = False  # whether they are g-values, which count by their layer


@dataclass(frozen=True)
class Score:
    """Green tokens among those scored. ``z_score`` and ``p_value`` are by the normal curve, for
    green lists as transformers has them; ``exact_p`` is how often chance alone tosses as many
    green tokens, or g-values of 1, or more."""

    tokens_scored: int
    green_tokens: int
    green_fraction: float
    z_score: float
    p_value: float
    exact_p: float


def count(values: Sequence[float], ones: int, chance: Chance) -> Score:
    """Score the values of tokens and the coins among theirs that came up 1; where nothing was
    scored there is nothing unusual either."""
    scored = len(values)
    green = sum(value > chance.mean for value in values)
    z = z_score(math.fsum(values), scored, chance)
    return Score(
        tokens_scored=scored,
        green_tokens=green,
        green_fraction=green / scored if scored else 0.0,
        z_score=z,
        p_value=normal_tail(z) if chance.layered else p_value(z),
        exact_p=binomial_tail(ones, scored * chance.coins, chance.share),
    )


def z_score(total: float, scored: int, chance: Chance) -> float:
    """How many standard deviations the sum of values lies above what chance expects."""
    if not scored:
        return 0.0
    return (total - chance.mean * scored) / math.sqrt(scored * chance.variance)


def p_value(z: float) -> float:
    """What `WatermarkDetector` gives for a z-score: a formula near the normal tail."""
    sign = (z > 0) - (z < 0)
    return 1 - 0.5 * (1 + sign * (1 - math.exp(-2 * z**2 / math.pi)))


def normal_tail(z: float) -> float:
    """How often a normal variable exceeds z."""
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


def verdict(score: Score, independent: Score, z_threshold: float, chance: Chance) -> str:
    """What a score says at this threshold, if its ``independent`` part says so too: the same draw
    again is no further evidence. Too short where all green could not have passed, by the normal
    curve or by the exact tail."""
    scored = independent.tokens_scored
    best = z_score(scored, scored, chance)
    exact = binomial_tail(scored * chance.coins, scored * chance.coins, chance.share)
    if not scored or best <= z_threshold or exact > normal_tail(z_threshold):
        return TOO_SHORT
    return MARKED if min(score.z_score, independent.z_score) > z_threshold else UNMARKED
