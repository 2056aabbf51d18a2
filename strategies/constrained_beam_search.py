"""Constrained beam search: a text that has to contain given words.

Anderson et al. 2017, "Guided Open Vocabulary Image Captioning with Constrained Beam Search"; Post
and Vilar 2018, "Fast Lexically Constrained Decoding with Dynamic Beam Allocation for Neural Machine
Translation", whose banks share out the beams. Tokens and scores are those of transformers 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from engine.errors import PlaygroundError
from engine.interop.custom_generate import custom_generate
from engine.run import Node, Run
from engine.settings import setting
from engine.strategy import Decoding, strategy
from strategies._beams import Beams
from strategies._constraints import Constraint, Progress
from strategies._hypotheses import Hypotheses, ended, ranked, split
from strategies.beam_search import search


@dataclass(frozen=True)
class Params(Beams):
    """What beam search is told, and what must appear."""

    num_beams: int = setting(5, "How many hypotheses are kept at each step.", low=2, limit="rows")
    force_words: Any = setting(
        None,
        "What must appear: a text, or a list of texts or token id lists. A list inside holds "
        "alternatives, one of which must. A text counts with or without a space before it, and "
        "what the prompt has counts.",
        kind=object,
    )
    force_words_ids: Any = setting(
        None, "The same under transformers' name for it.", kind=object, python_only=True
    )

    def __post_init__(self) -> None:
        """Refuse what is no tokens, and alternatives of which one is the beginning of another."""
        for name in ("force_words", "force_words_ids"):
            for phrases in constraints(getattr(self, name)):
                for one in phrases:
                    if not one or not all(isinstance(token, int) for token in one):
                        raise PlaygroundError(f"{name} has {list(one)}; it takes token ids here")
                    if sum(one == other[: len(one)] for other in phrases) > 1:
                        raise PlaygroundError(
                            f"{name} has {list(one)} to choose from, with which another one begins;"
                            " whoever writes that has written this"
                        )


def constraints(given: Sequence[Any] | None) -> tuple[Constraint, ...]:
    """What must appear, a phrase alone as its only alternative."""
    nested = [item if isinstance(next(iter(item), None), list) else [item] for item in given or []]
    return tuple(tuple(tuple(ids) for ids in phrases) for phrases in nested)


@strategy("constrained_beam_search", order=6, params=Params, do_sample=False)
def constrained_beam_search(run: Run, params: Params) -> Decoding:
    """Beam search for a text in which certain words must appear.

    At every step each beam also tries the tokens that take a missing phrase further. The beams are
    shared out fairly among those that have come equally far, so that a forced word gets its chance
    to fit in, and a text may only end once it has everything.
    """
    demanded = constraints(params.force_words) + constraints(params.force_words_ids)
    if not demanded:
        return (yield from search(run, params))
    width = params.num_beams
    beams = Hypotheses(run, params, run.root, width)
    progress = [Progress.after(run.root.ids.tolist(), demanded)] * width
    while True:
        scores = run.scores(beams.nodes, log_probs=True)  # (beams, vocab)
        places, forced = forcing(beams.best(scores), beams.nodes, progress, scores.shape[-1])
        found = beams.candidates(scores, places)
        pairs = zip(found.rows, found.tokens, strict=True)
        after = [progress[row].read(token) for row, token in pairs]

        # A text may end only once it has everything, unless nothing else is left.
        runners, finishers = split(found, width)
        ends = dict.fromkeys(i for i in (*finishers, *forced) if ended(found.stops[i]))
        whole = [index for index in ends if after[index].met]
        finishers = whole if whole or runners or beams.finished else finishers

        # The beams are shared out: the best of each bank gets one, then the second best of each, …
        banks = [state.bank for state in after]
        newcomers = [i for i in forced if i not in runners and not ended(found.stops[i])]
        if newcomers:
            banks = [forced[i] if i in newcomers else bank for i, bank in enumerate(banks)]
            runners = shared_out([*runners, *newcomers], banks, found.sums)[:width]
        notes = [
            {"bank": bank, "constraints": state.counts(), "forced": index in newcomers}
            for index, (bank, state) in enumerate(zip(banks, after, strict=True))
        ]
        beams.update(found, runners, finishers, notes)
        progress = [after[index] for index in runners]
        run.show([step for _, step in beams.tips])

        if beams.limit and not beams.over:
            met = [beam for beam, state in enumerate(progress) if state.met]
            beams.close(beams.limit, met)
            if len(met) < params.num_return_sequences:
                beams.close(beams.limit, [beam for beam in range(len(progress)) if beam not in met])
        if stop := beams.limit or beams.over:
            return run.finish(ranked(beams.finished, params.num_return_sequences), stop)
        beams.nodes = yield beams.asks


generate = custom_generate(constrained_beam_search)


def forcing(
    best: Tensor, nodes: Sequence[Node], progress: Sequence[Progress], vocabulary: int
) -> tuple[Tensor, dict[int, int]]:
    """The best places and those that take a constraint further; the latter's bank by its place."""
    places = best.tolist()
    texts: dict[tuple[int | None, int], int] = {}  # last step and token of each, all different
    for index, place in enumerate(places):
        texts.setdefault((nodes[place // vocabulary].step, place % vocabulary), index)
    banks: dict[int, int] = {}
    for row, state in enumerate(progress):
        for way, token in enumerate(state.wanted()):
            index = texts.setdefault((nodes[row].step, token), len(places))
            if index == len(places):
                places.append(row * vocabulary + token)
            # Of several ways to go on with a phrase, transformers counts the first as progress.
            counted = state.read(token) if way == 0 or state.current is None else state.broken()
            banks.setdefault(index, counted.bank)
    return torch.tensor(places, device=best.device), banks


def shared_out(pool: Sequence[int], banks: Sequence[int], sums: Tensor) -> list[int]:
    """The candidates in the order in which they get a beam."""
    keys = torch.tensor([banks[index] for index in pool], device=sums.device) * 100 + sums[pool]
    order = [pool[place] for place in keys.sort(descending=True).indices.tolist()]
    turns = [
        (turn, index)
        for _, bank in groupby(order, key=lambda index: banks[index])
        for turn, index in enumerate(bank)
    ]
    return [index for _, index in sorted(turns, key=lambda item: item[0])]
