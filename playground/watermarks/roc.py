"""Detection rates with confidence intervals, and ROC curves.

Takes the scores of unmarked texts (``null``) and of marked ones; a text is detected if its score is
above a threshold.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from engine.watermark.statistics import binomial_tail

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Rate:
    """A share with its 95 % confidence interval."""

    count: int
    of: int
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class RocPoint:
    """A point of a ROC curve."""

    threshold: float
    false_positives: float
    true_positives: float


@dataclass(frozen=True)
class OperatingPoint:
    """The share of marked texts that is found at a given false positive rate.

    ``target`` is the given rate and ``threshold`` the lowest that keeps within it; ``resolved`` is
    False if there are too few unmarked texts to measure such a rate.
    """

    target: float
    threshold: float
    false_positives: Rate
    true_positives: Rate
    resolved: bool


@lru_cache(maxsize=10_000)
def rate(count: int, of: int) -> Rate:
    """A share with its Clopper-Pearson interval, which covers the true share at least as often as
    the confidence level says."""
    if not of:
        return Rate(0, 0, 0.0, 0.0, 1.0)
    half = (1 - CONFIDENCE) / 2
    # The shares at which a count this high, or this low, has a probability of ``half``.
    low = _solve(lambda share: binomial_tail(count, of, share) < half) if count else 0.0
    high = (
        _solve(lambda share: 1 - binomial_tail(count + 1, of, share) > half) if count < of else 1.0
    )
    return Rate(count, of, count / of, low, high)


def _solve(below: Callable[[float], bool]) -> float:
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return low


def above(scores: Sequence[float], threshold: float) -> Rate:
    """The share of scores above a threshold."""
    return rate(sum(score > threshold for score in scores), len(scores))


def roc(null: Sequence[float], marked: Sequence[float]) -> tuple[RocPoint, ...]:
    """Both rates at every distinct threshold, highest first."""
    ordered = [sorted(scores) for scores in (null, marked)]
    thresholds = sorted({*null, *marked}, reverse=True)
    points = [
        RocPoint(
            threshold, *(1 - bisect_right(scores, threshold) / len(scores) for scores in ordered)
        )
        for threshold in thresholds
    ]
    return (*points, RocPoint(min(thresholds) - 1, 1.0, 1.0))


def auc(null: Sequence[float], marked: Sequence[float]) -> float:
    """The area under the ROC curve: the probability that a marked text scores above an unmarked
    one, with ties counted as half."""
    points = roc(null, marked)
    return sum(
        (after.false_positives - before.false_positives)
        * (after.true_positives + before.true_positives)
        / 2
        for before, after in pairwise(points)
    )


def operating(null: Sequence[float], marked: Sequence[float], target: float) -> OperatingPoint:
    """The share of marked texts that is found at a false positive rate."""
    allowed = math.floor(target * len(null) + 1e-9)  # unmarked texts above the threshold
    threshold = sorted(null, reverse=True)[allowed] if allowed < len(null) else min(null)
    return OperatingPoint(
        target, threshold, above(null, threshold), above(marked, threshold), allowed >= 1
    )


def power(curves: Sequence[Sequence[float]], threshold: float) -> tuple[float, ...]:
    """The share of texts above the threshold after each token; a curve is one text's scores."""
    return tuple(
        sum(score > threshold for score in scores) / len(scores)
        for scores in zip(*curves, strict=True)
    )


def needed(shares: Sequence[float], power: float) -> int | None:
    """The length from which on at least this share of texts is found; None if no length does."""
    below_power = [length for length, share in enumerate(shares, start=1) if share < power]
    least = below_power[-1] + 1 if below_power else 1
    return least if least <= len(shares) else None
