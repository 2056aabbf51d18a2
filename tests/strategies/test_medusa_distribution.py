"""Sampling with draft trees follows the model's distribution, counted over all possible texts.

Models and statistic are those of `test_speculative_distribution`. Texts are one token longer: the
first one is not drafted, and a tree of depth two follows it.
"""

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
from tests.strategies import test_speculative_distribution as distribution

SAMPLED = {"do_sample": True, "medusa_tokens": 6}
LENGTH = 4


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """The target's scores after every prefix of such a text."""
    monkeypatch.setattr(distribution, "LENGTH", LENGTH)
    monkeypatch.setattr(
        distribution, "TEXTS", list(product(range(distribution.TOKENS), repeat=LENGTH))
    )
    return distribution.table.__wrapped__("target")


def drafter(how: str) -> Any:
    """Heads on the target's embeddings, or trees of the least probable tokens; each tree is
    computed once."""
    module: Any = distribution.model("target" if how == "heads" else "adversarial")
    embedding, output = module.model.embed_tokens.weight.data, module.lm_head.weight.data
    torch.manual_seed(2)
    trees = TreeDrafter(Heads(embedding, output, torch.arange(distribution.TOKENS), 8, 2))
    known: dict[tuple[int, int], DraftTree] = {}

    def tree(node: distribution.TableNode, token: int, room: int) -> tuple[DraftTree, float]:
        size = TreeSize(SAMPLED["medusa_tokens"], min(trees.depth, room))
        if (token, room) not in known:
            known[token, room] = trees.tree(embedding[token][None, None], token, (), size)
        return known[token, room], 0.0

    return SimpleNamespace(tree=tree, default_size=trees.default_size)


def count_texts(target: Tensor, how: str, times: int, seed: int = 3) -> Tensor:
    run = distribution.TableRun(seed=seed, target=target)
    run.heads = drafter(how)  # type: ignore[attr-defined]
    run.draft_trees = lambda size: run.heads  # type: ignore[attr-defined]
    return run.count_texts(medusa, Params(**SAMPLED), times)


@pytest.mark.parametrize("how", ["heads", "adversarial"])
def test_sampling_with_any_tree_follows_the_models_distribution(how: str, target: Tensor) -> None:
    counts = count_texts(
        target, how, distribution.DRAWS if how == "heads" else distribution.DRAWS // 10
    )
    assert distribution.p_value(counts, target) > distribution.SIGNIFICANCE


def prefer_drafts(own: list[int], draft: Draft) -> Verdict:
    """Wrong: sometimes accepts a drafted token where the model sampled another one."""
    verdict = follow(own, draft)
    last = verdict.accepted[-1] if verdict.accepted else -1
    children = [at for at, above in enumerate(draft.parents) if above == last]
    if not children or verdict.token % 2:
        return verdict
    return Verdict([*verdict.accepted, children[0]], own[children[0] + 1])


def never_reject(own: list[int], draft: Draft) -> Verdict:
    """Wrong: accepts the first drafted token at each depth, to the end of the tree."""
    at, kept = -1, list[int]()
    while at in draft.parents:
        at = list(draft.parents).index(at)
        kept.append(at)
    return Verdict(kept, own[at + 1])


def bonus_from_previous_position(own: list[int], draft: Draft) -> Verdict:
    """Wrong: off by one, the bonus token is the one sampled a position earlier."""
    verdict = follow(own, draft)
    return verdict._replace(token=own[verdict.accepted[-1]] if verdict.accepted else verdict.token)


@pytest.mark.parametrize("wrong", [prefer_drafts, never_reject, bonus_from_previous_position])
def test_a_wrong_acceptance_rule_is_detected_with_a_twentieth_of_the_draws(
    wrong: Callable[..., Verdict], target: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strategies.speculative.follow", wrong)
    counts = count_texts(target, "heads", distribution.DRAWS // 20)
    assert distribution.p_value(counts, target) < distribution.SIGNIFICANCE / 1e6
