"""Questions to a device: a CPU answers with the same function, whatever a GPU records."""

import torch

from engine.backend import most
from engine.deciding import Deciding, highest


def test_a_cpu_does_the_work_as_it_is_asked_for() -> None:
    asked = []

    def work(scores: torch.Tensor, count: int) -> torch.Tensor:
        asked.append(count)
        return scores.topk(count).values

    answer = Deciding()(work, torch.tensor([3.0, 1.0, 2.0]), count=2)
    assert answer.tolist() == [3, 2] and asked == [2]


def test_the_highest_scores_are_found_by_blocks_as_by_looking_at_all() -> None:
    torch.manual_seed(0)
    scores = torch.randn(3, 5 * 49_152 // 3)
    best = [scores.gather(-1, way(scores, 10)) for way in (highest, most)]
    assert torch.equal(*best)
