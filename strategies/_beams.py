"""What all kinds of beam search share: settings, candidates, running and finished hypotheses.

The bookkeeping is that of transformers, so that tokens and scores are equal: `VECTORIZED` has the
rules of transformers 5 for plain beam search, `BEAM_SCORER` those of transformers 4 for searches in
groups or under constraints, which transformers 5 no longer has.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.run import Continuation, Node, Pick, Run
from engine.settings import setting
from engine.trace import Stop

RULED_OUT = -1.0e9  # the total of a beam that must not win


@dataclass(frozen=True)
class BeamParams:
    """The settings of every beam search."""

    num_beams: int = setting(5, "The number of hypotheses kept at each step.", low=1, limit="rows")
    num_return_sequences: int = setting(
        None,
        "The number of finished hypotheses to return; at most num_beams.",
        kind=int,
        low=1,
        limit="rows",
    )
    length_penalty: float = setting(
        None,
        "The score of a hypothesis is its sum of log-probabilities divided by its length to this "
        "power: above 0 favors long texts, below 0 short ones.",
        low=-10.0,
        high=10.0,
    )
    early_stopping: bool | str = setting(
        None,
        "true: stop once num_beams hypotheses have finished; false: stop when a better one is "
        "unlikely; never: stop only when no better one is possible.",
        kind=object,
        choices=(False, True, "never"),
    )

    def score(self, total: float, length: int) -> float:
        """The score of a text: its sum of log-probabilities, normalized by its length."""
        return total / float(length**self.length_penalty)


class Rules(NamedTuple):
    """The points in which transformers' two versions of the bookkeeping differ."""

    # Whether a text at its length or time limit ends like any other one. Otherwise it stays among
    # the running ones, all of which are cut off with the search.
    limit_ends: bool
    ranks_running: bool  # whether candidates are ranked again before the best of them run on
    # Whether the best running hypothesis has to be able to beat the finished ones for the search to
    # continue. Otherwise it is the best candidate, even one that has just finished.
    running_must_improve: bool
    lowest_score: float  # what scores less is not kept as a finished hypothesis


VECTORIZED = Rules(
    limit_ends=True, ranks_running=True, running_must_improve=True, lowest_score=RULED_OUT
)
BEAM_SCORER = Rules(
    limit_ends=False, ranks_running=False, running_must_improve=False, lowest_score=-math.inf
)


@dataclass(frozen=True, eq=False)
class Candidates:
    """Continuations that compete for a place among the beams."""

    parents: list[Node]
    beams: list[int]  # the beam that each one continues
    tokens: list[int]
    scores: Tensor  # (candidates,) log-probabilities of the tokens
    totals: Tensor  # (candidates,) sums of log-probabilities of the whole texts
    stops: list[Stop | None]  # the rule that ends each text, if one does

    def picks(self, events: Sequence[str], notes: Sequence[Mapping[str, Any]]) -> list[Pick]:
        """What to record of each."""
        return list(map(Pick, self.parents, self.tokens, events, notes))


class Hypothesis(NamedTuple):
    """A finished text."""

    score: float
    step: int  # its last one
    stop: Stop


class Beams:
    """A group of beams: the running hypotheses, and the best of those that have finished."""

    def __init__(
        self, run: Run, params: BeamParams, root: Node, size: int, *, rules: Rules
    ) -> None:
        self.nodes: Sequence[Node] = [root] * size
        # All beams start as the same text: all but the first are kept from winning.
        self.totals = torch.tensor([0.0] + [RULED_OUT] * (size - 1))  # (beams,)
        self.size = size
        self.continuations: list[Continuation] = []  # to be evaluated for the next step
        self.finished: list[Hypothesis] = []  # at most ``size``
        self.stop: Stop | None = None  # the rule that ended the search
        self.limit: Stop | None = None  # the limit that running texts have reached
        self._run = run
        self._params = params
        self._rules = rules
        self._length = 0
        self._running: list[tuple[float, int]] = []  # total and last step

    @property
    def num_candidates(self) -> int:
        """How many continuations to consider: enough for ``size`` of them to run on, even if every
        beam also reaches each of the end tokens."""
        return self.size * max(2, 1 + len(self._run.end_tokens))

    def candidates(
        self, beams: Sequence[int], tokens: Sequence[int], scores: Sequence[float]
    ) -> Candidates:
        """Continuations of some beams by some tokens, whose log-probabilities are given."""
        added = torch.tensor(scores)
        parents = [self.nodes[beam] for beam in beams]
        stops = self._run.stops(parents, tokens)
        totals = added + self.totals[list(beams)]
        return Candidates(parents, list(beams), list(tokens), added, totals, stops)

    def split(self, found: Candidates) -> tuple[list[int], list[int]]:
        """The candidates that run on, the best that have not ended, and those that finish: ended
        ones among the best ``size``; the others were considered only to run on."""
        ended = [self.has_ended(stop) for stop in found.stops]
        order = list(range(len(ended)))
        if self._rules.ranks_running:
            ranks = found.totals + torch.tensor(ended) * RULED_OUT
            order = ranks.topk(min(self.size, len(order))).indices.tolist()
        running = [index for index in order if not ended[index]]
        finishing = [index for index, end in enumerate(ended[: self.size]) if end]
        return running[: self.size], finishing

    def has_ended(self, stop: Stop | None) -> bool:
        """Whether a rule ends a text at once."""
        return stop is not None and (self._rules.limit_ends or stop.rule not in ("length", "time"))

    def advance(
        self,
        found: Candidates,
        running: Sequence[int],
        finishing: Sequence[int],
        notes: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Let some candidates run on and others finish, and record all of them."""
        self._length += 1
        totals = found.totals.tolist()
        self.limit = next((found.stops[i] for i in running if found.stops[i]), None)
        finished = {*finishing, *(index for index in running if found.stops[index])}
        events = [
            "finished" if index in finished else "chosen" if index in running else "pruned"
            for index in range(len(totals))
        ]
        own = self._notes(found)
        steps = self._run.record(
            found.picks(events, [{**a, **b} for a, b in zip(own, notes or own, strict=True)])
        )
        for index in finishing:
            if stop := found.stops[index]:
                self._finish(totals[index], steps[index], stop)
        self.totals = found.totals[list(running)]
        self._running = [(totals[index], steps[index]) for index in running]
        self.continuations = [(found.parents[index], found.tokens[index]) for index in running]
        if not running:
            self.stop = found.stops[0]
        else:
            self.stop = self._over(totals[running[0] if self._rules.running_must_improve else 0])

    def cut_off(self, limit: Stop, beams: Iterable[int] | None = None) -> None:
        """Finish running texts, all or some of them, because of a limit."""
        for beam in range(len(self._running)) if beams is None else beams:
            self._finish(*self._running[beam], limit)

    @property
    def tips(self) -> list[tuple[float, int]]:
        """Score and last step of the texts to display: running ones, or finished ones at the
        end."""
        if self.stop:
            return [(text.score, text.step) for text in self.finished]
        return [(self._params.score(total, self._length), step) for total, step in self._running]

    def _finish(self, total: float, step: int, stop: Stop) -> None:
        score = self._params.score(total, self._length)
        if score < self._rules.lowest_score:
            return
        if len(self.finished) == self.size:
            worst = min(self.finished, key=lambda text: text.score)
            if score <= worst.score:
                return
            self.finished.remove(worst)
        self.finished.append(Hypothesis(score, step, stop))

    def _over(self, total: float) -> Stop | None:
        """The rule that ends the search, if one does, given the best running text's total."""
        full = len(self.finished) == self.size
        if full and self._params.early_stopping is True:
            return Stop("early_stopping", f"{self.size} hypotheses finished")
        # The length at which that text would score best.
        grows = self._params.early_stopping == "never" and self._params.length_penalty > 0.0
        hope = self._params.score(total, self._run.max_new_tokens if grows else self._length)
        if full:
            improves = hope > min(text.score for text in self.finished)
        else:
            improves = hope >= self._rules.lowest_score
        return (
            None
            if improves
            else Stop("no_improvement", "no running beam can beat the finished ones")
        )

    def _notes(self, found: Candidates) -> list[dict[str, Any]]:
        """The numbers of each candidate: its score and its parent's total give its total."""
        columns = zip(found.beams, found.scores.tolist(), found.totals.tolist(), strict=True)
        return [
            {
                "beam": beam,
                "order": order,
                "score": rounded(score),
                "total": rounded(total),
                "normalized": rounded(self._params.score(total, self._length)),
            }
            for order, (beam, score, total) in enumerate(columns)
        ]


def ranked(finished: Sequence[Hypothesis], count: int) -> list[tuple[int, float | None, Stop]]:
    """The texts to return, best first: last step, score and stopping rule of each."""
    order = sorted(finished, key=lambda text: text.score)[::-1]
    # A limit may cut off a text whose last token was ruled out: it has no score.
    return [
        (text.step, text.score if text.score > -math.inf else None, text.stop)
        for text in order[:count]
    ]


def rounded(score: float) -> float | None:
    """A score for the record, or None where the candidate was ruled out."""
    return round(score, 6) if score > RULED_OUT / 2 else None
