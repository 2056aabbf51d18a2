"""Pearson's chi-square: how odd counts are, and what such a test can see at all.

Knows counts and probabilities. Refuses to know what was counted.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch

T = TypeVar("T", bound=Hashable)

LEAST = 5.0  # expected in a cell: with fewer, the statistic is not distributed as it should be


@dataclass(frozen=True)
class Tested:
    """A test that was made. ``cells`` are the expected shares it compared, ``pooled`` how many
    outcomes were too rare for a cell of their own and share one."""

    draws: int
    cells: tuple[float, ...]
    sizes: tuple[int, ...]  # outcomes in each cell
    statistic: float
    pooled: int

    @property
    def freedom(self) -> int:
        """Degrees of freedom."""
        return max(0, len(self.cells) - 1)

    @property
    def p_value(self) -> float:
        """How probable a statistic at least this large is, were the shares the right ones."""
        return tail(self.statistic, self.freedom)

    def power(self, share: float, alarm: float) -> float:
        """The odds that this many draws give an alarm where so large a share of them came blindly,
        every outcome as likely as another."""
        total = sum(self.sizes)
        blind = [size / total for size in self.sizes]
        pairs = zip(self.cells, blind, strict=True)
        apart = share**2 * sum((other - usual) ** 2 / usual for usual, other in pairs)
        return noncentral_tail(critical(self.freedom, alarm), self.freedom, self.draws * apart)

    def detectable(self, odds: float, alarm: float) -> float | None:
        """The smallest share of blind draws that gives an alarm with these odds; None where not
        even all of them would."""
        if self.power(1.0, alarm) < odds:
            return None
        low, high = 0.0, 1.0
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (low, middle) if self.power(middle, alarm) >= odds else (middle, high)
        return high


def chi_square(counts: Mapping[T, int], exact: Mapping[T, float], draws: int) -> Tested:
    """Hold counts against exact probabilities; rare outcomes share a cell.

    An outcome that cannot be, and was counted all the same, makes the statistic infinite.
    """
    frequent = [one for one, share in exact.items() if share * draws >= LEAST]
    alone = set(frequent)
    rare = [one for one in exact if one not in alone]
    cells, seen = [exact[one] for one in frequent], [counts.get(one, 0) for one in frequent]
    sizes = [1] * len(frequent)
    rest = sum(exact[one] for one in rare)
    among = sum(counts.get(one, 0) for one in rare)
    if cells and 0 < rest * draws < LEAST:  # too little even together: it joins the least of them
        at = cells.index(min(cells))
        cells[at], seen[at], sizes[at] = cells[at] + rest, seen[at] + among, sizes[at] + len(rare)
    elif rest > 0:
        cells, seen, sizes = [*cells, rest], [*seen, among], [*sizes, len(rare)]
    impossible = draws - sum(seen)
    statistic = sum(
        (count - share * draws) ** 2 / (share * draws)
        for count, share in zip(seen, cells, strict=True)
    )
    if impossible:
        statistic = math.inf
    return Tested(draws, tuple(cells), tuple(sizes), statistic, len(rare))


def tail(statistic: float, freedom: int) -> float:
    """The odds that chi-square is at least this large."""
    if math.isinf(statistic):
        return 0.0
    if freedom < 1:
        return 1.0
    half = torch.tensor([freedom / 2, statistic / 2], dtype=torch.double)
    return float(torch.special.gammaincc(half[0], half[1]))


def critical(freedom: int, alarm: float) -> float:
    """What chi-square exceeds with probability ``alarm``."""
    low, high = 0.0, 10.0
    while tail(high, freedom) > alarm and high < 1e6:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle, freedom) > alarm else (low, middle)
    return high


def noncentral_tail(statistic: float, freedom: int, apart: float) -> float:
    """The odds that chi-square is at least this large where the shares are wrong by ``apart``: a
    Poisson mixture of central ones."""
    if freedom < 1:
        return 0.0
    half = apart / 2
    most = int(half + 12 * math.sqrt(half + 1) + 20)
    steps = torch.arange(most, dtype=torch.double)
    weights = (-half + steps * math.log(max(half, 1e-300)) - torch.lgamma(steps + 1)).exp()
    beyond = torch.special.gammaincc(freedom / 2 + steps, torch.full_like(steps, statistic / 2))
    return min(1.0, float((weights * beyond).sum()))
