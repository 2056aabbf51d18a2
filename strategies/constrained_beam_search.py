"""Constrained beam search: a text that has to contain given words.

Anderson et al. 2017, "Guided Open Vocabulary Image Captioning with Constrained Beam Search"; Post
and Vilar 2018, "Fast Lexically Constrained Decoding with Dynamic Beam Allocation for Neural Machine
Translation", whose banks divide the beams. Tokens and scores are those of transformers 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from engine.errors import PlaygroundError
from engine.interop.custom_generate import custom_generate
from engine.run import Run, Subroutine
from engine.settings import setting
from engine.strategy import Decoding, strategy
from strategies._beams import BEAM_SCORER, BeamParams, Beams, Candidates, ranked
from strategies.beam_search import search

Constraint = tuple[tuple[int, ...], ...]  # phrases, one of which must appear


@dataclass(frozen=True)
class Params(BeamParams):
    """The settings of beam search, and the constraints."""

    num_beams: int = setting(5, "The number of hypotheses kept at each step.", low=2, limit="rows")
    force_words: Any = setting(
        None,
        "Text that must appear: a string, or a list of strings or token id lists. An inner list "
        "holds alternatives, one of which must appear. A string counts with or without a space "
        "before it, and the prompt counts, too.",
        kind=object,
    )
    force_words_ids: Any = setting(
        None, "The same, under the name it has in transformers.", kind=object, python_only=True
    )

    def __post_init__(self) -> None:
        """Reject what is no token ids, and alternatives of which one is a prefix of another."""
        for name in ("force_words", "force_words_ids"):
            for phrases in constraints(getattr(self, name)):
                for one in phrases:
                    if not one or not all(isinstance(token, int) for token in one):
                        raise PlaygroundError(f"{name} has {list(one)}; it takes token ids here")
                    if sum(one == other[: len(one)] for other in phrases) > 1:
                        raise PlaygroundError(
                            f"{name} has {list(one)} as an alternative to a phrase that starts with"
                            " it; remove the longer one"
                        )


def constraints(given: Sequence[Any] | None) -> tuple[Constraint, ...]:
    """The constraints of a setting: a phrase alone is its own only alternative."""
    nested = [item if isinstance(next(iter(item), None), list) else [item] for item in given or []]
    return tuple(tuple(tuple(ids) for ids in phrases) for phrases in nested)


@strategy("constrained_beam_search", order=6, params=Params, do_sample=False)
def constrained_beam_search(run: Run, params: Params) -> Decoding:
    """Beam search for a text in which given words must appear.

    At each step every beam also tries the tokens that continue a missing phrase. The beams are
    divided among hypotheses that have met different parts of the constraints, so that a forced word
    can take effect, and a text may end only when all constraints are met.
    """
    required = constraints(params.force_words) + constraints(params.force_words_ids)
    if not required:
        return (yield from search(run, params))
    beams = Beams(run, params, run.root, params.num_beams, rules=BEAM_SCORER)
    progress = [Progress.after(run.root.ids.tolist(), required)] * params.num_beams
    while True:
        # Besides the most probable continuations, those that advance a constraint.
        found, forced = yield from candidates(run, beams, progress)
        after = [
            progress[beam].read(token)
            for beam, token in zip(found.beams, found.tokens, strict=True)
        ]
        # A text may end only when all constraints are met, unless nothing else is left.
        running, finishing = beams.split(found)
        ends = dict.fromkeys(
            index for index in (*finishing, *forced) if beams.has_ended(found.stops[index])
        )
        met = [index for index in ends if after[index].met]
        finishing = met if met or running or beams.finished else finishing

        # Divide the beams: the best of each bank gets one, then the second best of each, and so on.
        banks = [state.bank for state in after]
        added = [i for i in forced if i not in running and not beams.has_ended(found.stops[i])]
        if added:
            banks = [forced[index] if index in added else bank for index, bank in enumerate(banks)]
            running = divide([*running, *added], banks, found.totals)[: params.num_beams]
        notes = [
            {"bank": bank, "constraints": state.counts(), "forced": index in added}
            for index, (bank, state) in enumerate(zip(banks, after, strict=True))
        ]
        beams.advance(found, running, finishing, notes)
        progress = [after[index] for index in running]
        run.show([step for _, step in beams.tips])

        if beams.limit and not beams.stop:
            met = [beam for beam, state in enumerate(progress) if state.met]
            beams.cut_off(beams.limit, met)
            if len(met) < params.num_return_sequences:
                unmet = [beam for beam in range(len(progress)) if beam not in met]
                beams.cut_off(beams.limit, unmet)
        if stop := beams.limit or beams.stop:
            return run.finish(ranked(beams.finished, params.num_return_sequences), stop)
        beams.nodes = yield beams.continuations


generate = custom_generate(constrained_beam_search)


def candidates(
    run: Run, beams: Beams, progress: Sequence[Progress]
) -> Subroutine[tuple[Candidates, dict[int, int]]]:
    """The best continuations and those that advance a constraint; the banks of the latter."""
    wanted = [
        (beam, token, way)
        for beam, state in enumerate(progress)
        for way, token in enumerate(state.wanted())
    ]
    pairs = [(beam, token) for beam, token, _ in wanted]
    count = beams.num_candidates
    best = yield from run.best_continuations(beams.nodes, beams.totals, count, also=pairs)
    rows, tokens, scores, of_wanted = best
    steps = [node.step for node in beams.nodes]
    indices: dict[tuple[int | None, int], int] = {}  # by last step and token: all texts differ
    for index, (beam, token) in enumerate(zip(rows, tokens, strict=True)):
        indices.setdefault((steps[beam], token), index)
    banks: dict[int, int] = {}
    for (beam, token, way), score in zip(wanted, of_wanted, strict=True):
        index = indices.setdefault((steps[beam], token), len(tokens))
        if index == len(tokens):
            rows.append(beam)
            tokens.append(token)
            scores.append(score)
        # Of several ways to continue a phrase, transformers counts only the first as progress.
        state = progress[beam]
        counted = state.read(token) if way == 0 or state.current is None else state.restarted()
        banks.setdefault(index, counted.bank)
    return beams.candidates(rows, tokens, scores), banks


def divide(pool: Sequence[int], banks: Sequence[int], totals: Tensor) -> list[int]:
    """Candidates in the order in which they get a beam."""
    keys = torch.tensor([banks[index] for index in pool]) * 100 + totals[list(pool)]
    order = [pool[place] for place in keys.sort(descending=True).indices.tolist()]
    turns = [
        (turn, index)
        for _, bank in groupby(order, key=lambda index: banks[index])
        for turn, index in enumerate(bank)
    ]
    return [index for _, index in sorted(turns, key=lambda item: item[0])]


@dataclass(frozen=True)
class Progress:
    """How far one text has met its constraints, by the rules of transformers 4: it works on one
    constraint at a time, and a token that does not fit restarts that."""

    constraints: tuple[Constraint, ...]
    waiting: tuple[int, ...]  # the constraints not started, in the order in which they are tried
    current: int | None = None  # the constraint that is started
    written: tuple[int, ...] = ()  # its tokens so far

    @staticmethod
    def after(tokens: Iterable[int], constraints: tuple[Constraint, ...]) -> Progress:
        """The progress of a text."""
        progress = Progress(constraints, tuple(range(len(constraints))))
        for token in tokens:
            progress = progress.read(token)
        return progress

    def read(self, token: int) -> Progress:
        """The progress with one more token."""
        for which in self._tried:
            if token in self._next(which):
                waiting = tuple(other for other in self.waiting if other != which)
                advanced = replace(
                    self, waiting=waiting, current=which, written=(*self.written, token)
                )
                complete = not advanced._next(which)
                return replace(advanced, current=None, written=()) if complete else advanced
        return self.restarted()

    def restarted(self) -> Progress:
        """The progress when the current constraint starts again, after those that wait."""
        if self.current is None:
            return self
        return replace(self, waiting=(*self.waiting, self.current), current=None, written=())

    def wanted(self) -> list[int]:
        """The tokens that would advance a constraint."""
        return list(dict.fromkeys(token for which in self._tried for token in self._next(which)))

    @property
    def met(self) -> bool:
        """Whether all constraints are met."""
        return self.current is None and not self.waiting

    def counts(self) -> list[list[int]]:
        """For each constraint the number of its tokens so far, and of all its tokens."""
        counts = []
        for which, phrases in enumerate(self.constraints):
            length = max(map(len, phrases))
            done = len(self.written) if which == self.current else length
            counts.append([0 if which in self.waiting else done, length])
        return counts

    @property
    def bank(self) -> int:
        """The number of constraint tokens so far, as if all constraints were as long as the
        longest."""
        counts = self.counts()
        longest = max((length for _, length in counts), default=0)
        return sum(longest - length + done for done, length in counts if done)

    @property
    def _tried(self) -> tuple[int, ...]:
        return self.waiting if self.current is None else (self.current,)

    def _next(self, which: int) -> list[int]:
        """The tokens that continue phrases of a constraint after what is written."""
        at = len(self.written)
        phrases = self.constraints[which]
        return [phrase[at] for phrase in phrases if phrase[:at] == self.written and phrase[at:]]
