"""Draft heads: the model says from one state what may come next but one, and so on.

Cai et al. 2024, "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads";
heads that read the drafted tokens before theirs: Ankner et al. 2024, "Hydra: Sequentially-Dependent
Draft Heads for Medusa Decoding".
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from engine.accel.host_future import HostFuture
from engine.accel.medusa_pipeline import Ahead
from engine.drafting.draft_tree import Size, Tree
from engine.run import Node, Run
from engine.settings import setting
from engine.strategy import Ask, Decoding, strategy
from engine.trace.statistics import KnownStatistics
from strategies._speculation import Proposal, Verdict, judged, speculate, walk
from strategies.sample import Shaping


@dataclass(frozen=True)
class Params(Shaping):
    """How large trees of drafts are."""

    medusa_tokens: int | None = setting(
        None,
        "How many drafted tokens the model judges in a round; without a number, as many as pay "
        "here: a GPU judges many in the time of one.",
        kind=int,
        low=1,
        limit="draft_tokens",
    )
    medusa_depth: int | None = setting(
        None,
        "How many tokens ahead to draft, at most one for each of the model's draft heads; without "
        "a number, with all of them.",
        kind=int,
        low=1,
        high=16,
    )
    medusa_threshold: float | None = setting(
        None,
        "Leave out tokens that the heads think are reached with less than this probability; "
        "without a number, those that do not pay here, or none if medusa_tokens is given.",
        low=0.0,
        high=1.0,
    )
    do_sample: bool = setting(
        False,
        "Draw tokens, as probable as the model thinks they are, instead of the most probable.",
    )


@strategy(
    "medusa", order=13, params=Params, drafts=True, heads=True, decoder_only=True, num_beams=1
)
def medusa(run: Run, params: Params) -> Decoding:
    """Drafts a tree of continuations with small heads on the model, and keeps what it agrees with.

    One pass of the model judges the whole tree. The text is the one greedy decoding would give, or,
    drawn, one from the very distribution that sampling has.
    """
    size = _size(run, params)
    drafting = _Drafting(run, size, Ahead(run, size))
    judge = None if params.do_sample else drafting.judge
    return speculate(run, drafting.draft, do_sample=params.do_sample, judge=judge)


@dataclass(frozen=True)
class _Drafting:
    """Drafts by the model's heads; where a GPU goes on by itself, what it has drafted and read."""

    run: Run
    largest: Size
    ahead: Ahead

    def draft(
        self, written: list[int], room: int, number: int, last: Node
    ) -> Generator[Sequence[Ask], list[Node], Proposal]:
        """A tree behind the last token written."""
        run, size = self.run, self.largest._replace(depth=min(self.largest.depth, room))
        if size.depth <= 0 or not written:  # heads begin with a token that the model took
            return Proposal()
        if there := self.ahead.drafted(last, written[-1]):
            tree, nodes, ms = there
            return Proposal(tree.tokens, None, _notes(tree, ms), tree.parents, nodes)
        since = time.perf_counter()
        features = run.features([last], run.heads.layers)
        tree = run.heads.tree(features, written[-1], run.end_tokens, size)
        ms = (time.perf_counter() - since) * 1000
        return Proposal(tree.tokens, notes=_notes(tree, ms), parents=tree.parents)
        yield []  # a drafter is a generator, though this one asks nobody

    def judge(
        self, nodes: Sequence[Node], proposal: Proposal
    ) -> Generator[HostFuture, Tensor, tuple[Verdict, list[float]]]:
        """Judge a tree, and have the device go on where nothing hinders it."""
        if self.ahead.possible(nodes) and (there := (yield from self.ahead.judged(nodes))):
            rows = [above + 1 for above in proposal.above]
            drafted = zip(rows, proposal.tokens, strict=True)
            told = zip(there.log_probs, there.higher, strict=True)
            self.run.know(nodes, KnownStatistics(there.best, dict(zip(drafted, told, strict=True))))
            return walk(there.own, proposal), [*map(math.exp, there.log_probs)]
        return (yield from judged(self.run, False, nodes, proposal))


def _size(run: Run, params: Params) -> Size:
    """How large trees may get: as the settings say, or as it pays."""
    usual = run.heads.usual
    tokens, least = params.medusa_tokens, params.medusa_threshold
    if least is None:
        least = usual.least if tokens is None else 0.0
    depth = min(params.medusa_depth or usual.depth, usual.depth)
    return Size(tokens or usual.tokens, depth, least)


def _notes(tree: Tree, ms: float) -> list[dict[str, Any]]:
    """What the heads thought of each token; with the first, how long they took for all."""
    notes: list[dict[str, Any]] = [
        {"q": float(f"{math.exp(log_prob):.6g}"), "depth": depth}
        for log_prob, depth in zip(tree.log_probs, tree.depths, strict=True)
    ]
    if notes:
        notes[0]["draft_ms"] = round(ms, 3)
    return notes
