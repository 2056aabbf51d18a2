"""Beam search, with transformers' bookkeeping of running and finished hypotheses.

Graves 2012, "Sequence Transduction with Recurrent Neural Networks"; the length penalty is that of
Wu et al. 2016 without its constants: score = sum of log-probabilities / length ** length_penalty.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import torch
from torch import Tensor

from engine.interop.custom_generate import custom_generate
from engine.run import Run
from engine.strategy import Decoding, strategy
from engine.trace import Stop
from strategies._beams import NEVER, Beams, Candidates, breadth, first_totals, with_totals

# Picks candidates from the summed scores of all continuations, (continuations,): their places.
Draw = Callable[[Tensor, int], Tensor]


@strategy("beam_search", order=3, params=Beams, do_sample=False)
def beam_search(run: Run, params: Beams) -> Decoding:
    """Keeps the few most probable beginnings at every step and returns the best whole text.

    Finds more probable texts than greedy decoding does. The most probable text is often a dull
    one, and open-ended texts come out short or repetitive.
    """
    return search(run, params)


generate = custom_generate(beam_search)


def search(run: Run, params: Beams, draw: Draw | None = None) -> Decoding:
    """Beam search over the best continuations, or over whatever ``draw`` picks of a step's."""
    width = params.num_beams
    looked_at = width * breadth(run)
    nodes = [run.root] * width
    totals = first_totals(width)
    finished = Finished(run, params)
    for length in count(1):
        if draw is None:
            found = yield from Candidates.best(run, nodes, totals, looked_at)
        else:
            scores = run.scores(nodes, log_probs=True)  # (beams, vocab)
            places = draw(with_totals(scores, totals).flatten(), looked_at)
            found = Candidates.at(run, nodes, scores, totals, places)
        ended = torch.tensor([stop is not None for stop in found.stops])

        # The best candidates that have not ended run on.
        totals, kept = (found.sums + ended * NEVER).topk(width)
        runners = kept.tolist()
        events = [
            ("finished" if index < width else "pruned")
            if stop
            else "chosen"
            if index in runners
            else "pruned"
            for index, stop in enumerate(found.stops)
        ]
        steps = run.record(found.picks(events, found.notes(params.divisor(length))))
        run.show([steps[index] for index in runners])

        stop = finished.update(found, ended, totals, steps)
        if stop:
            return run.finish(finished.best(), stop)
        nodes = yield [(found.parents[index], found.tokens[index]) for index in runners]


class Finished:
    """The finished hypotheses: who is in, at which score, and whether it is worth going on."""

    def __init__(self, run: Run, params: Beams) -> None:
        self._params = params
        self._returned = params.num_return_sequences
        self._longest = run.config.max_length - len(run.root.ids)
        self._length = 0
        width = params.num_beams
        self._scores = torch.full((width,), NEVER)
        self._full = torch.zeros(width, dtype=torch.bool)
        self._members: list[tuple[int, Stop] | None] = [None] * width  # last step, what ended it
        self._improvable = True

    def update(
        self, found: Candidates, ended: Tensor, totals: Tensor, steps: list[int]
    ) -> Stop | None:
        """Take in the candidates that ended; the rule that ends the search, if one does now."""
        width, early = self._params.num_beams, self._params.early_stopping is True
        self._length += 1
        if not any(found.stops) and not any(self._members) and self._hopeful(totals) > NEVER:
            return None  # nobody has finished yet: there is nothing to beat
        # Only the best `num_beams` candidates may finish; the others were there to run on.
        finishing = ended & (torch.arange(len(ended)) < width)
        closed = (early and bool(self._full.all())) or not self._improvable
        scores = found.sums / self._params.divisor(self._length) + (~finishing | closed) * NEVER
        merged = torch.cat([self._scores, scores])
        self._scores, at = merged.topk(width)
        self._full = torch.cat([self._full, finishing])[at]
        candidates = [
            (step, stop) if stop else None for step, stop in zip(steps, found.stops, strict=True)
        ]
        self._members = [[*self._members, *candidates][index] for index in at.tolist()]
        return self._over(totals, early, found.stops)

    def best(self) -> list[tuple[int, float | None, Stop]]:
        """The sequences to return: last step, score, and what ended each."""
        return [
            (member[0], score, member[1])
            for member, score in zip(self._members, self._scores.tolist(), strict=True)
            if member is not None
        ][: self._returned]

    def _hopeful(self, totals: Tensor) -> Tensor:
        """The score that the best running beam may hope for."""
        length = self._params.hopeful_length(self._length, self._longest)
        return totals[0] / self._params.divisor(length)

    def _over(self, totals: Tensor, early: bool, stops: list[Stop | None]) -> Stop | None:
        # Can the best running beam still beat the worst finished one?
        worst = torch.where(self._full, self._scores.min(), NEVER)
        self._improvable &= bool((self._hopeful(totals) > worst).any())
        if all(stops):
            return stops[0]
        if early and bool(self._full.all()):
            return Stop("early_stopping", f"{len(self._full)} hypotheses finished")
        if not self._improvable:
            return Stop("no_improvement", "no running beam can beat the finished ones")
        return None
