"""Medusa: speculative decoding whose drafts are trees by extra heads on the model.

Cai et al. 2024, "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads";
heads that read the drafted tokens before theirs: Ankner et al. 2024, "Hydra: Sequentially-Dependent
Draft Heads for Medusa Decoding".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from engine.drafting.draft_tree import DraftTree
from engine.drafting.tree_size import TreeSize
from engine.run import Node, Run, Subroutine
from engine.settings import setting
from engine.strategy import Decoding, strategy
from strategies._drafting import DO_SAMPLE, Draft, significant
from strategies.sample import SamplingParams
from strategies.speculative import speculate


@dataclass(frozen=True)
class Params(SamplingParams):
    """The size of the trees."""

    medusa_tokens: int | None = setting(
        None,
        "The most tokens to draft in a round. By default as many as are fastest here: a GPU "
        "verifies many in the time of one.",
        kind=int,
        low=1,
        limit="draft_tokens",
    )
    medusa_depth: int | None = setting(
        None,
        "How many tokens ahead to draft: at most, and by default, one for each draft head.",
        kind=int,
        low=1,
        high=16,
    )
    medusa_threshold: float | None = setting(
        None,
        "Drop drafted tokens whose path the heads give a lower probability. By default what is "
        "fastest here, or 0 if medusa_tokens is given.",
        low=0.0,
        high=1.0,
    )
    do_sample: bool = setting(False, DO_SAMPLE)


@strategy(
    "medusa", order=13, params=Params, drafts=True, heads=True, decoder_only=True, num_beams=1
)
def medusa(run: Run, params: Params) -> Decoding:
    """Drafts a tree of continuations with small heads on the model and keeps one accepted path.

    One pass of the model verifies the whole tree. The text is the one of greedy decoding or, with
    do_sample, follows exactly the distribution of sampling.
    """
    trees = run.draft_trees(_tree_size(run.heads.default_size, params))

    def draft(generated: list[int], room: int, number: int, node: Node) -> Subroutine[Draft]:
        if not generated or room <= 0:  # heads start from a token that the model took
            return Draft()
        tree, ms = trees.tree(node, generated[-1], room)
        return Draft(tree.tokens, notes=_notes(tree, ms), tree=tree.parents)
        yield []  # a subroutine, though this one evaluates nothing

    return speculate(run, draft, do_sample=params.do_sample)


def _tree_size(default: TreeSize, params: Params) -> TreeSize:
    tokens, threshold = params.medusa_tokens, params.medusa_threshold
    if threshold is None:
        threshold = default.min_probability if tokens is None else 0.0
    depth = min(params.medusa_depth or default.depth, default.depth)
    return TreeSize(tokens or default.tokens, depth, threshold)


def _notes(tree: DraftTree, ms: float) -> list[dict[str, Any]]:
    """The heads' probability of each token; with the first one, the time that drafting took."""
    notes: list[dict[str, Any]] = [
        {"q": significant(math.exp(log_prob)), "depth": depth}
        for log_prob, depth in zip(tree.log_probs, tree.depths, strict=True)
    ]
    if notes:
        notes[0]["draft_ms"] = round(ms, 3)
    return notes
