"""Sampling with draft trees follows the model's distribution, counted over all possible texts.

Models and statistic are those of `test_speculative_odds`. Texts are one token longer: the first one
is not drafted, and a tree of depth two follows it."""

from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.drafting.draft_tree import DraftTree, TreeDrafter
from engine.drafting.heads import Heads
from engine.drafting.tree_size import TreeSize
from strategies._drafting import Draft
from strategies.medusa import Params, medusa
from strategies.speculative import Verdict, follow
from tests.strategies import test_speculative_odds as odds

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
    known: dict[tuple[int, int], DraftTree] = {}

    def tree(node: odds.At, token: int, room: int) -> tuple[DraftTree, float]:
        size = TreeSize(SAMPLED["medusa_tokens"], min(trees.depth, room))
        if (token, room) not in known:
            known[token, room] = trees.tree(embedding[token][None, None], token, (), size)
        return known[token, room], 0.0

    return SimpleNamespace(tree=tree, default_size=trees.default_size)


def drawn(target: Tensor, how: str, times: int, seed: int = 3) -> Tensor:
    run = odds.Lean(seed=seed, target=target)
    run.heads = drafter(how)  # type: ignore[attr-defined]
    run.draft_trees = lambda size: run.heads  # type: ignore[attr-defined]
    return run.written(medusa, Params(**SAMPLED), times)


@pytest.mark.parametrize("how", ["heads", "adversarial"])
def test_sampling_with_any_tree_follows_the_models_distribution(how: str, target: Tensor) -> None:
    counts = drawn(target, how, odds.DRAWS if how == "heads" else odds.DRAWS // 10)
    assert odds.p_value(counts, target) > odds.ALARM


def prefer_drafts(own: list[int], draft: Draft) -> Verdict:
    """Wrong: where the model takes another token, a drafted one is kept once in a while."""
    verdict = follow(own, draft)
    behind = verdict.accepted[-1] if verdict.accepted else -1
    beside = [at for at, above in enumerate(draft.parents) if above == behind]
    if not beside or verdict.token % 2:
        return verdict
    return Verdict([*verdict.accepted, beside[0]], own[beside[0] + 1])


def never_reject(own: list[int], draft: Draft) -> Verdict:
    """Wrong: follows the first drafted token to the end of the tree."""
    at, kept = -1, list[int]()
    while at in draft.parents:
        at = list(draft.parents).index(at)
        kept.append(at)
    return Verdict(kept, own[at + 1])


def close_from_the_place_before(own: list[int], draft: Draft) -> Verdict:
    """Wrong: off by one, the token at the end is the one that led there."""
    verdict = follow(own, draft)
    return verdict._replace(token=own[verdict.accepted[-1]] if verdict.accepted else verdict.token)


@pytest.mark.parametrize("wrong", [prefer_drafts, never_reject, close_from_the_place_before])
def test_a_wrong_acceptance_rule_is_detected_with_a_twentieth_of_the_draws(
    wrong: Callable[..., Verdict], target: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strategies.speculative.follow", wrong)
    counts = drawn(target, "heads", odds.DRAWS // 20)
    assert odds.p_value(counts, target) < odds.ALARM / 1e6
