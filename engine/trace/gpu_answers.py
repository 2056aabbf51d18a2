"""What a GPU was asked of distributions, as numbers: its one answer taken apart.

Knows where in an answer the numbers of a request lie. Refuses to know how a device is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from engine.accel.host_future import HostFuture
from engine.trace.statistics import Numbers, Picks, Told, rows_of
from engine.trie.backend import TOP


class Part(NamedTuple):
    """Where some numbers lie among others, as rows of one width."""

    start: int
    rows: int
    width: int

    def row(self, numbers: list[float], at: int) -> list[float]:
        """One of the rows."""
        start = self.start + at * self.width
        return numbers[start : start + self.width]

    def every(self, numbers: list[float], some: slice = slice(None)) -> list[list[float]]:
        """All of them, or some."""
        return [self.row(numbers, at) for at in range(self.rows)[some]]


class Answer:
    """What was asked of a device, once it is there."""

    def __init__(self, question: HostFuture) -> None:
        self._question = question

    # As lists: to look at one more tensor takes as long as to look at a hundred numbers.

    @cached_property
    def numbers(self) -> list[float]:
        """All there are."""
        return list(self._question.result().tolist())

    @cached_property
    def probs(self) -> list[float]:
        """The same as if all were log-probabilities: what probabilities they stand for."""
        return list(self._question.result().float().exp().tolist())


def numbers_of(answer: Answer, parts: Sequence[Part], rows: range, picks: Picks) -> Numbers:
    """The numbers of one request, which has some of a table's rows."""
    tokens, log_probs, spread, higher, *of_stages = parts
    own = slice(rows.start, rows.stop)
    raw_entropy, raw_varentropy = (of_all[own] for of_all in spread.every(answer.numbers))
    told = {
        row: _told(answer, tokens, log_probs, higher.width, rows[row]) for row in rows_of(picks)
    }
    numbers = Numbers(
        told=told,
        last=0,
        raw_entropy=raw_entropy,
        raw_varentropy=raw_varentropy,
        final_entropy=raw_entropy,
        kept=[],
        lowest=[],
        given=[],
        ranks=_ranked(picks, told, higher.every(answer.numbers, own)),
    )
    if not of_stages:
        return numbers
    alive, lowest, final_entropy = of_stages
    given, *kept = (list(map(int, left[own])) for left in alive.every(answer.numbers))
    return numbers._replace(
        last=(tokens.width - higher.width) // 2,  # as many as are there as the model's best
        final_entropy=final_entropy.row(answer.numbers, 0)[own],
        kept=kept,
        lowest=[of_all[own] for of_all in lowest.every(answer.probs)],
        given=given,
    )


def _told(answer: Answer, tokens: Part, log_probs: Part, picked: int, row: int) -> Told:
    """What one row has, the first so many of its tokens being those picked."""
    each = log_probs.width // tokens.width  # numbers of a token
    own, probs = log_probs.row(answer.numbers, row), log_probs.row(answer.probs, row)
    return Told(list(map(int, tokens.row(answer.numbers, row))), own[: picked * each], probs)


def _ranked(picks: Picks, told: dict[int, Told], higher: list[list[float]]) -> list[int]:
    """Each pick's place: among a row's most probable tokens, else behind all that are higher."""
    columns, ranks = dict.fromkeys(told, 0), []
    for row, token in picks:  # a row's picks are its first columns, in order
        width = len(higher[row])
        best = told[row].tokens[width : width + TOP]
        behind = best.index(token) if token in best else int(higher[row][columns[row]])
        ranks.append(1 + behind)
        columns[row] += 1
    return ranks
