"""How well a score tells two kinds of texts apart: rates, curves, and how sure they are.

Knows two lists of numbers, scores of texts without a mark and with one; a text is called marked
where its score is above a threshold. Refuses to know where scores come from.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from engine.watermark.statistics import binomial_tail

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Rate:
    """A share that was counted, and the interval the true one lies in 95 times in a hundred."""

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
    """How many marked texts are found where few others are called marked.

    ``threshold`` is the lowest that keeps within the rate asked for among the texts there were;
    ``resolved`` tells whether there were enough of them for such a rate to show at all.
    """

    asked: float
    threshold: float
    false_positives: Rate
    true_positives: Rate
    resolved: bool


def rate(count: int, of: int) -> Rate:
    """A share with the interval of Clopper and Pearson, which never claims too much."""
    if not of:
        return Rate(0, 0, 0.0, 0.0, 1.0)
    half = (1 - CONFIDENCE) / 2
    # The shares at which chance gives this many, or this few, in one case of forty.
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
    """How many scores are above a threshold."""
    return rate(sum(score > threshold for score in scores), len(scores))


def roc(null: Sequence[float], marked: Sequence[float]) -> tuple[RocPoint, ...]:
    """Both rates at every threshold that makes a difference, strictest first."""
    ordered = [sorted(scores) for scores in (null, marked)]
    thresholds = sorted({*null, *marked}, reverse=True)
    corners = [
        RocPoint(
            threshold, *(1 - bisect_right(scores, threshold) / len(scores) for scores in ordered)
        )
        for threshold in thresholds
    ]
    return (*corners, RocPoint(min(thresholds) - 1, 1.0, 1.0))


def auc(null: Sequence[float], marked: Sequence[float]) -> float:
    """The area under the ROC curve: how often a marked text scores above one without a mark, with
    equal scores counted as half."""
    corners = roc(null, marked)
    return sum(
        (after.false_positives - before.false_positives)
        * (after.true_positives + before.true_positives)
        / 2
        for before, after in pairwise(corners)
    )


def operating(null: Sequence[float], marked: Sequence[float], asked: float) -> OperatingPoint:
    """How many marked texts are found at a rate of false alarms."""
    allowed = math.floor(
        asked * len(null) + 1e-9
    )  # texts without a mark that may lie above the threshold
    threshold = sorted(null, reverse=True)[allowed] if allowed < len(null) else min(null)
    return OperatingPoint(
        asked, threshold, above(null, threshold), above(marked, threshold), allowed >= 1
    )


def power(curves: Sequence[Sequence[float]], threshold: float) -> tuple[float, ...]:
    """The share of texts above the threshold after each token; a curve is one text's scores."""
    return tuple(
        sum(score > threshold for score in scores) / len(scores)
        for scores in zip(*curves, strict=True)
    )


def needed(shares: Sequence[float], power: float) -> int | None:
    """The length from which on at least this share of texts is found; None where that is more
    than there are tokens."""
    lacking = [length for length, share in enumerate(shares, start=1) if share < power]
    least = lacking[-1] + 1 if lacking else 1
    return least if least <= len(shares) else None
