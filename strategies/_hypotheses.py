"""The hypotheses of beams that search in groups or under constraints: running ones, finished ones.

Keeps the books as transformers 4 did for these two searches, which is not how it keeps them for
plain beam search. Knows scores and when to give up. Refuses to know which candidates may run on or
finish: the searches decide that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from engine.run import Node, Run
from engine.trace import Stop
from strategies._beams import Beams, Candidates, breadth, first_totals, with_totals


class Hypothesis(NamedTuple):
    """A text that has finished: its score, its last step and the rule that ended it."""

    score: float
    step: int
    stop: Stop


class Hypotheses:
    """Some beams: the texts that run, and the best of those that have finished."""

    def __init__(self, run: Run, params: Beams, root: Node, beams: int) -> None:
        self.nodes: Sequence[Node] = [root] * beams
        self.asks: list[tuple[Node, int]] = []  # what gives the nodes of the next step
        self.finished: list[Hypothesis] = []  # at most as many as there are beams
        self.over: Stop | None = None  # the rule by which it is useless to go on
        self.limit: Stop | None = None  # the rule that cuts off the texts that run
        self._run = run
        self._params = params
        self._beams = beams
        self._length = 0
        self._longest = run.config.max_length - len(root.ids)
        self._totals = first_totals(beams)
        self._running: list[tuple[float, int]] = []  # total and last step

    @property
    def tips(self) -> list[tuple[float, int]]:
        """Score and last step of the texts to show: those that run, else those that finished."""
        if self.over:
            return [(text.score, text.step) for text in self.finished]
        return [(self._score(total), step) for total, step in self._running]

    def best(self, scores: Tensor) -> Tensor:
        """Where the best continuations stand in the flattened scores, (beams * vocab,)."""
        return self.sums(scores).flatten().topk(self._beams * breadth(self._run)).indices

    def sums(self, scores: Tensor) -> Tensor:
        """What each text would have in all with each token, (beams, vocab)."""
        return with_totals(scores, self._totals)

    def candidates(self, scores: Tensor, places: Tensor) -> Candidates:
        """The continuations at some places of the flattened scores."""
        return Candidates.at(self._run, self.nodes, scores, self._totals, places)

    def update(
        self,
        found: Candidates,
        runners: Sequence[int],
        finishers: Sequence[int],
        notes: Sequence[Mapping[str, Any]],
    ) -> None:
        """Let some candidates run on and others finish, and tell the trace of all."""
        self._length += 1
        divisor = self._params.divisor(self._length)
        events = [_event(i, stop, runners, finishers) for i, stop in enumerate(found.stops)]
        told = [{**own, **more} for own, more in zip(found.notes(divisor), notes, strict=True)]
        steps = self._run.record(found.picks(events, told))
        sums = found.sums.tolist()
        for index in finishers:
            if stop := found.stops[index]:
                self._finish(sums[index], steps[index], stop)
        self._totals = found.sums[runners]
        self._running = [(sums[index], steps[index]) for index in runners]
        self.asks = [(found.parents[index], found.tokens[index]) for index in runners]
        self.limit = next((found.stops[index] for index in runners if found.stops[index]), None)
        self.over = self._useless(sums[0]) if runners else found.stops[0]

    def close(self, limit: Stop, beams: Iterable[int] | None = None) -> None:
        """Take running texts, all or some, as finished where a limit cuts them off."""
        for beam in range(len(self._running)) if beams is None else beams:
            self._finish(*self._running[beam], limit)

    def _finish(self, total: float, step: int, stop: Stop) -> None:
        score = self._score(total)
        if len(self.finished) == self._beams:
            worst = min(self.finished, key=lambda text: text.score)
            if score <= worst.score:
                return
            self.finished.remove(worst)
        self.finished.append(Hypothesis(score, step, stop))

    def _useless(self, total: float) -> Stop | None:
        """Why not to go on from a step whose best candidate has this sum, if there is a reason."""
        if len(self.finished) < self._beams:
            return None
        if self._params.early_stopping is True:
            return Stop("early_stopping", f"{self._beams} hypotheses finished")
        length = self._params.hopeful_length(self._length, self._longest)
        if min(text.score for text in self.finished) >= total / self._params.divisor(length):
            return Stop("no_improvement", "no running beam can beat the finished ones")
        return None

    def _score(self, total: float) -> float:
        return total / self._params.divisor(self._length)


def ended(stop: Stop | None) -> bool:
    """Whether a text has come to its end: one that meets a limit runs on, and is cut off."""
    return stop is not None and stop.rule not in ("length", "time")


def split(found: Candidates, beams: int) -> tuple[list[int], list[int]]:
    """The best candidates that have not ended, to run on, and those among the best that have."""
    ends = [ended(stop) for stop in found.stops]
    runners = [index for index, end in enumerate(ends) if not end]
    return runners[:beams], [index for index, end in enumerate(ends[:beams]) if end]


def ranked(finished: Sequence[Hypothesis], count: int) -> list[tuple[int, float | None, Stop]]:
    """The texts to return, best first and of equals the last: last step, score, what ended each."""
    order = sorted(finished, key=lambda text: text.score)[::-1]
    # A limit may cut off a text whose last token was ruled out: it has no score.
    return [
        (text.step, text.score if text.score > -math.inf else None, text.stop)
        for text in order[:count]
    ]


def _event(index: int, stop: Stop | None, runners: Sequence[int], finishers: Sequence[int]) -> str:
    if index in finishers or (index in runners and stop):
        return "finished"
    return "chosen" if index in runners else "pruned"
