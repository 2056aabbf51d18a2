"""Drawn through trees of drafts, texts have the model's own distribution: counted, over all there
are. See `test_speculative_odds`, whose models and statistic these are, with texts one longer: the
first token is drafted by nobody, and a tree two deep is to be walked behind it."""

from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.drafting.draft_tree import Size, Tree, TreeDrafter
from engine.drafting.heads import Heads
from strategies import _speculation
from strategies._speculation import Proposal, Verdict
from strategies.medusa import Params, medusa
from tests.strategies import test_speculative_odds as odds

WALK = _speculation.walk
SAMPLED = {"do_sample": True, "medusa_tokens": 6}
LENGTH = 4


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """The scores behind every beginning, of texts as long as these are."""
    monkeypatch.setattr(odds, "LENGTH", LENGTH)
    monkeypatch.setattr(odds, "TEXTS", list(product(range(odds.TOKENS), repeat=LENGTH)))
    return odds.table.__wrapped__("target")


def drafter(how: str) -> Any:
    """Heads on the target's embeddings, or trees that have whatever is least probable; each tree is
    grown once."""
    module: Any = odds.model("target" if how == "heads" else "adversarial")
    embedding, output = module.model.embed_tokens.weight.data, module.lm_head.weight.data
    torch.manual_seed(2)
    trees = TreeDrafter(Heads(embedding, output, torch.arange(odds.TOKENS), 8, 2))
    known: dict[tuple[int, int], Tree] = {}

    def tree(features: Tensor, token: int, ends: Any, size: Size) -> Tree:
        if (token, size.depth) not in known:
            known[token, size.depth] = trees.tree(embedding[token][None, None], token, ends, size)
        return known[token, size.depth]

    return SimpleNamespace(tree=tree, usual=trees.usual, layers=trees.layers)


def drawn(target: Tensor, how: str, times: int, seed: int = 3) -> Tensor:
    run = odds.Lean(seed=seed, target=target)
    run.heads, run.features = drafter(how), lambda nodes, layers: None  # type: ignore[attr-defined]
    return run.written(medusa, Params(**SAMPLED), times)


@pytest.mark.parametrize("how", ["heads", "adversarial"])
def test_any_tree_leaves_the_models_own_distribution(how: str, target: Tensor) -> None:
    counts = drawn(target, how, odds.DRAWS if how == "heads" else odds.DRAWS // 10)
    assert odds.p_value(counts, target) > odds.ALARM


def prefer_drafts(own: list[int], proposal: Proposal) -> Verdict:
    """Wrong: where the model takes another token, a drafted one is kept once in a while."""
    verdict = WALK(own, proposal)
    behind = verdict.kept[-1] if verdict.kept else -1
    beside = [at for at, above in enumerate(proposal.above) if above == behind]
    if not beside or verdict.token % 2:
        return verdict
    return Verdict([*verdict.kept, beside[0]], own[beside[0] + 1])


def never_reject(own: list[int], proposal: Proposal) -> Verdict:
    """Wrong: follows the first drafted token to the end of the tree."""
    at, kept = -1, list[int]()
    while at in proposal.above:
        at = list(proposal.above).index(at)
        kept.append(at)
    return Verdict(kept, own[at + 1])


def close_from_the_place_before(own: list[int], proposal: Proposal) -> Verdict:
    """Wrong: off by one, the token at the end is the one that led there."""
    verdict = WALK(own, proposal)
    return verdict._replace(token=own[verdict.kept[-1]] if verdict.kept else verdict.token)


@pytest.mark.parametrize("wrong", [prefer_drafts, never_reject, close_from_the_place_before])
def test_a_wrong_walk_is_found_with_a_twentieth_of_the_draws(
    wrong: Callable[..., Verdict], target: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_speculation, "walk", wrong)
    counts = drawn(target, "heads", odds.DRAWS // 20)
    assert odds.p_value(counts, target) < odds.ALARM / 1e6
