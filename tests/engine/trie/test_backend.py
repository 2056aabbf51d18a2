"""Statistics of logits: the most probable tokens, and entropy."""

import math

import pytest
import torch

from engine.trie.backend import BLOCK, TOP, NodeOutput, entropy, most


@pytest.mark.parametrize("size", [3, 259, 16 * BLOCK, 384 * BLOCK])
@pytest.mark.parametrize("rows", [0, 1, 5])
@pytest.mark.parametrize("count", [TOP, 64])
def test_most_probable_tokens_are_those_of_topk(size: int, rows: int, count: int) -> None:
    scores = torch.randn(rows, size, generator=torch.Generator().manual_seed(size))
    assert torch.equal(most(scores, count), scores.topk(min(count, size)).indices)


def test_most_probable_tokens_may_all_be_in_one_block() -> None:
    scores = torch.arange(16.0 * BLOCK).repeat(2, 1)
    assert most(scores).tolist() == [list(range(16 * BLOCK - 1, 16 * BLOCK - 1 - TOP, -1))] * 2


def test_cut_tokens_do_not_count_in_the_entropy() -> None:
    scores = torch.tensor([[0.0, 0.0, -torch.inf, -torch.inf], [5.0, -torch.inf, -torch.inf, -2.0]])
    likely = 1 / (1 + math.exp(-7.0))
    rest = 1 - likely
    expected = [math.log(2), -likely * math.log(likely) - rest * math.log(rest)]
    assert entropy(scores.log_softmax(-1)).tolist() == pytest.approx(expected, abs=1e-5)


def test_statistics_of_no_rows_are_empty() -> None:
    assert NodeOutput.of(torch.empty(0, 16 * BLOCK)).top_tokens.shape == (0, TOP)
