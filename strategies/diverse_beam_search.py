"""Diverse beam search: groups of beams that avoid each other's tokens.

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
from strategies._beams import BEAM_SCORER, BeamParams, Beams, ranked, rounded
from strategies.beam_search import search


@dataclass(frozen=True)
class Params(BeamParams):
    """The settings of beam search, and those of its groups."""

    num_beams: int = setting(
        6, "The number of hypotheses kept at each step, in all groups.", low=1, limit="rows"
    )
    num_beam_groups: int = setting(
        3,
        "The number of groups; num_beams must be a multiple of it.",
        low=1,
        limit="rows",
    )
    diversity_penalty: float = setting(
        1.0,
        "Subtracted from a token's score for every beam of an earlier group that takes the same "
        "token at the same step.",
        low=0.0,
        high=100.0,
    )

    def __post_init__(self) -> None:
        """Reject beams that cannot be split into groups, and groups without a penalty."""
        if self.num_beams % self.num_beam_groups:
            raise PlaygroundError(
                f"num_beams is {self.num_beams}; it must be a multiple of num_beam_groups, which is"
                f" {self.num_beam_groups}"
            )
        if self.num_beam_groups > 1 and not self.diversity_penalty:
            raise PlaygroundError(
                "diversity_penalty is 0; with several groups it must be above 0, or all of them"
                " return the same text"
            )


@strategy("diverse_beam_search", order=5, params=Params, do_sample=False)
def diverse_beam_search(run: Run, params: Params) -> Decoding:
    """Beam search in groups, each of which is penalized for the tokens of the groups before it.

    The beams of plain beam search end as variations of one text. Here each group is a beam search
    of its own, and a token loses score for every beam of an earlier group that takes it at the same
    step.
    """
    if params.num_beam_groups == 1:
        return (yield from search(run, params))
    size, penalty = params.num_beams // params.num_beam_groups, params.diversity_penalty
    # Two groups may write the same text, with other scores: each is recorded as a separate tree.
    roots = [replace(run.root, tree=number) for number in range(params.num_beam_groups)]
    groups = [Beams(run, params, root, size, rules=BEAM_SCORER) for root in roots]
    while True:
        taken: list[int] = []  # the tokens of this step, group after group
        for number, group in enumerate(groups):
            if group.stop:
                taken += [run.pad] * size  # a finished group writes padding, as in transformers
                continue
            # log p(token | text) - penalty * (beams of earlier groups that take the token)
            stage = ("hamming_diversity", dissimilar(run, group.nodes, taken, penalty))
            avoided = Counter(taken)
            pairs = [(beam, token) for token in avoided for beam in range(len(group.nodes))]
            best = yield from run.best_continuations(
                group.nodes, group.totals, group.num_candidates, also=pairs, stage=stage
            )
            found = group.candidates(best.rows, best.tokens, best.log_probs)
            notes: list[dict[str, Any]] = [
                {
                    "beam": number * size + beam,
                    "group": number,
                    "penalty": round(penalty * avoided[token], 6),
                }
                for beam, token in zip(found.beams, found.tokens, strict=True)
            ]
            # A high penalty keeps a token out of the candidates: it is recorded here instead.
            notes[0]["avoided"] = _avoided(group, avoided, best.also, penalty)
            group.advance(found, *group.split(found), notes)
            taken += [token for _, *[token] in group.continuations]
        tips = [tip for group in groups for tip in group.tips]
        run.show([step for _, step in sorted(tips, reverse=True)])

        running = [group for group in groups if not group.stop]
        limit = next((group.limit for group in running if group.limit), None)
        if limit:
            for group in running:
                group.cut_off(limit)
        if stop := limit or (None if running else groups[-1].stop):
            finished = [text for group in groups for text in group.finished]
            return run.finish(ranked(finished, params.num_return_sequences), stop)
        nodes = iter((yield [each for group in running for each in group.continuations]))
        for group in running:
            group.nodes = [next(nodes) for _ in group.continuations]


generate = custom_generate(diverse_beam_search)


def dissimilar(run: Run, nodes: Sequence[Node], taken: Sequence[int], penalty: float) -> Tensor:
    """The log-probabilities after each node, (nodes, vocab), less the penalty for taken tokens."""
    log_probs = run.logits(nodes).log_softmax(-1)
    # Hamming diversity: the number of other beams with the token at the same position.
    others = torch.tensor(taken, dtype=torch.long).bincount(minlength=log_probs.shape[-1])
    return log_probs - penalty * others.to(log_probs)


def _avoided(
    group: Beams, avoided: Counter[int], scores: Sequence[float], penalty: float
) -> list[list[float | None]]:
    """For every token that earlier groups took: its id, its penalty, and the best total with which
    it could have continued this group, penalty included."""
    of_tokens = torch.tensor(scores).view(len(avoided), len(group.nodes))
    totals = (of_tokens + group.totals).tolist()  # (tokens, beams)
    return [
        [token, round(penalty * times, 6), rounded(max(of_token))]
        for (token, times), of_token in zip(avoided.items(), totals, strict=True)
    ]
