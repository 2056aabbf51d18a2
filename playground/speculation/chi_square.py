"""Pearson's chi-square test of counts against exact probabilities, and its power."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch

T = TypeVar("T", bound=Hashable)

MIN_EXPECTED = 5.0  # in each cell; with fewer the statistic does not follow the distribution


@dataclass(frozen=True)
class ChiSquareTest:
    """The result of a test. ``cells`` are the expected shares of the cells, ``sizes`` the number of
    outcomes in each, and ``pooled`` the number of outcomes too rare for a cell of their own."""

    draws: int
    cells: tuple[float, ...]
    sizes: tuple[int, ...]
    statistic: float
    pooled: int

    @property
    def freedom(self) -> int:
        """Degrees of freedom."""
        return max(0, len(self.cells) - 1)

    @property
    def p_value(self) -> float:
        """The probability of a statistic at least this large if the expected shares are right."""
        return tail(self.statistic, self.freedom)

    def power(self, share: float, significance: float) -> float:
        """The probability that the test rejects if this share of the draws is uniform over all
        outcomes instead."""
        total = sum(self.sizes)
        uniform = [size / total for size in self.sizes]
        pairs = zip(self.cells, uniform, strict=True)
        effect = share**2 * sum((other - expected) ** 2 / expected for expected, other in pairs)
        threshold = critical(self.freedom, significance)
        return noncentral_tail(threshold, self.freedom, self.draws * effect)

    def detectable(self, power: float, significance: float) -> float | None:
        """The smallest share of uniform draws that is detected with this power; None if even a
        share of 1 is not."""
        if self.power(1.0, significance) < power:
            return None
        low, high = 0.0, 1.0
        for _ in range(30):
            middle = (low + high) / 2
            enough = self.power(middle, significance) >= power
            low, high = (low, middle) if enough else (middle, high)
        return high


def chi_square(counts: Mapping[T, int], exact: Mapping[T, float], draws: int) -> ChiSquareTest:
    """Test counts against exact probabilities; rare outcomes share a cell.

    A count of an impossible outcome makes the statistic infinite.
    """
    frequent = {outcome for outcome, share in exact.items() if share * draws >= MIN_EXPECTED}
    rare = [outcome for outcome in exact if outcome not in frequent]
    cells = [share for outcome, share in exact.items() if outcome in frequent]
    counted = [counts.get(outcome, 0) for outcome in exact if outcome in frequent]
    sizes = [1] * len(cells)
    rest = sum(exact[outcome] for outcome in rare)
    rest_counted = sum(counts.get(outcome, 0) for outcome in rare)
    if cells and 0 < rest * draws < MIN_EXPECTED:  # too few even together: join the smallest cell
        at = cells.index(min(cells))
        cells[at], counted[at] = cells[at] + rest, counted[at] + rest_counted
        sizes[at] += len(rare)
    elif rest > 0:
        cells, counted, sizes = [*cells, rest], [*counted, rest_counted], [*sizes, len(rare)]
    statistic = sum(
        (count - share * draws) ** 2 / (share * draws)
        for count, share in zip(counted, cells, strict=True)
    )
    if sum(counted) != draws:
        statistic = math.inf
    return ChiSquareTest(draws, tuple(cells), tuple(sizes), statistic, len(rare))


def tail(statistic: float, freedom: int) -> float:
    """P(X >= statistic) for a chi-square X."""
    if math.isinf(statistic):
        return 0.0
    if freedom < 1:
        return 1.0
    half = torch.tensor([freedom / 2, statistic / 2], dtype=torch.double)
    return float(torch.special.gammaincc(half[0], half[1]))


def critical(freedom: int, significance: float) -> float:
    """The statistic that a chi-square variable exceeds with this probability, by bisection."""
    low, high = 0.0, 10.0
    while tail(high, freedom) > significance and high < 1e6:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle, freedom) > significance else (low, middle)
    return high


def noncentral_tail(statistic: float, freedom: int, noncentrality: float) -> float:
    """P(X >= statistic) for a noncentral chi-square X: a Poisson mixture of central ones."""
    if freedom < 1:
        return 0.0
    half = noncentrality / 2
    terms = torch.arange(int(half + 12 * math.sqrt(half + 1) + 20), dtype=torch.double)
    weights = (-half + terms * math.log(max(half, 1e-300)) - torch.lgamma(terms + 1)).exp()
    tails = torch.special.gammaincc(freedom / 2 + terms, torch.full_like(terms, statistic / 2))
    return min(1.0, float((weights * tails).sum()))
