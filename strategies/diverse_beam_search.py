"""Diverse beam search: groups of beams that keep out of each other's way.

Vijayakumar et al. 2016, "Diverse Beam Search: Decoding Diverse Solutions from Neural Sequence
Models", with the Hamming diversity they found to work best. Tokens and scores are those of
transformers 4's group beam search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from engine.errors import PlaygroundError
from engine.interop.custom_generate import custom_generate
from engine.run import Node, Run
from engine.settings import setting
from engine.strategy import Decoding, strategy
from strategies._beams import Beams, recorded
from strategies._hypotheses import Hypotheses, ranked, split
from strategies.beam_search import search


@dataclass(frozen=True)
class Params(Beams):
    """What beam search is told, and how its beams are kept apart."""

    num_beams: int = setting(
        6, "How many hypotheses are kept at each step, all groups together.", low=1, limit="rows"
    )
    num_beam_groups: int = setting(
        3,
        "How many groups the beams form; num_beams must be a multiple of it.",
        low=1,
        limit="rows",
    )
    diversity_penalty: float = setting(
        1.0,
        "Taken off a token's score for every beam of an earlier group that takes the same token at "
        "the same step.",
        low=0.0,
        high=100.0,
    )

    def __post_init__(self) -> None:
        """Refuse what cannot be split into groups, and groups that nothing keeps apart."""
        if self.num_beams % self.num_beam_groups:
            raise PlaygroundError(
                f"num_beams is {self.num_beams}; it must be a multiple of num_beam_groups, which is"
                f" {self.num_beam_groups}"
            )
        if self.num_beam_groups > 1 and not self.diversity_penalty:
            raise PlaygroundError(
                "diversity_penalty is 0; it must be above 0 where there are several groups, or all"
                " would write the same"
            )


@strategy("diverse_beam_search", order=5, params=Params, do_sample=False)
def diverse_beam_search(run: Run, params: Params) -> Decoding:
    """Searches in groups of beams, each of which avoids the words that the groups before it take.

    The beams of plain beam search end up as variations of one text. Here every group is a beam
    search of its own, and a token costs it more the more beams of earlier groups take that token
    at the same step.
    """
    if params.num_beam_groups == 1:
        return (yield from search(run, params))  # nobody else is there to keep out of the way of
    size = params.num_beams // params.num_beam_groups
    # Groups may well write the same text, at other scores: each tells of it in a tree apart.
    roots = [replace(run.root, tree=number) for number in range(params.num_beam_groups)]
    groups = [Hypotheses(run, params, root, size) for root in roots]
    while True:
        taken: list[int] = []  # the tokens that the groups take at this step, one after the other
        for number, group in enumerate(groups):
            if group.over:
                # It is taken to write padding, which later groups avoid as they would a word.
                taken += [run.pad] * size
                continue
            scores = dissimilar(run, group.nodes, taken, params.diversity_penalty)  # (size, vocab)
            found = group.candidates(scores, group.best(scores))
            notes: list[dict[str, Any]] = [
                {
                    "beam": number * size + row,
                    "group": number,
                    "penalty": round(params.diversity_penalty * taken.count(token), 6),
                }
                for row, token in zip(found.rows, found.tokens, strict=True)
            ]
            # A heavy penalty drives a token from the candidates: only here is it told of.
            notes[0]["avoided"] = _avoided(group.sums(scores), taken, params.diversity_penalty)
            group.update(found, *split(found, size), notes)
            taken += [token for _, token in group.asks]
        tips = [tip for group in groups for tip in group.tips]
        run.show([step for _, step in sorted(tips, reverse=True)])

        running = [group for group in groups if not group.over]
        limit = next((group.limit for group in running if group.limit), None)
        if limit:
            for group in running:
                group.close(limit)
        if stop := limit or (None if running else groups[-1].over):
            finished = [text for group in groups for text in group.finished]
            return run.finish(ranked(finished, params.num_return_sequences), stop)
        nodes = iter((yield [ask for group in running for ask in group.asks]))
        for group in running:
            group.nodes = [next(nodes) for _ in group.asks]


generate = custom_generate(diverse_beam_search)


def _avoided(sums: Tensor, taken: Sequence[int], penalty: float) -> list[list[float | None]]:
    """For every token that earlier groups took: its id, its penalty, and the best total with which
    it could have gone on in this group, the penalty taken off."""
    counts = Counter(taken)
    totals = sums[:, list(counts)].amax(0).tolist()
    return [
        [token, round(penalty * times, 6), recorded(total)]
        for (token, times), total in zip(counts.items(), totals, strict=True)
    ]


def dissimilar(run: Run, nodes: Sequence[Node], taken: Sequence[int], penalty: float) -> Tensor:
    """The scores of a group, (nodes, vocab), less the penalty for what earlier groups took."""
    log_probs = run.logits(nodes).log_softmax(-1)  # (nodes, vocab)
    others = torch.tensor(taken, dtype=torch.long, device=log_probs.device)
    # Hamming diversity: the number of other beams that have the token at the same place.
    alike = torch.bincount(others, minlength=log_probs.shape[-1])  # (vocab,)
    reshaped = ("hamming_diversity", log_probs - penalty * alike)
    return run.scores(nodes, log_probs=True, reshaped=reshaped)
