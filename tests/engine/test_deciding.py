"""Questions to a device: a CPU answers with the same function, whatever a GPU records."""

import pytest
import torch

from engine import deciding, processing
from engine.backend import most
from engine.deciding import Deciding, Question, highest
from playground import Playground
from tests.tiny import tiny


def test_a_cpu_does_the_work_as_it_is_asked_for() -> None:
    asked = []

    def work(scores: torch.Tensor, count: int) -> torch.Tensor:
        asked.append(count)
        return scores.topk(count).values

    answer = Deciding()(work, torch.tensor([3.0, 1.0, 2.0]), count=2)
    assert answer().tolist() == [3, 2] and asked == [2] and not answer.open


def test_nobody_waits_for_a_device_before_all_have_asked_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab, runs = Playground(tiny("llama")), ["greedy", "sample", "beam_search", "contrastive_search"]
    expected = lab.compare("a few words", runs, max_new_tokens=6)
    told: list[str] = []

    class Slow(Question):
        """A question to a device that takes its time."""

        open = True

        def __init__(self, asked: torch.Tensor) -> None:
            super().__init__(asked)
            told.append("asked")

        def __call__(self) -> torch.Tensor:
            told.append("waited")
            return super().__call__()

    for module in (deciding, processing):
        monkeypatch.setattr(module, "Question", Slow)
    traces = lab.compare("a few words", runs, max_new_tokens=6)
    assert [trace.steps for trace in traces] == [trace.steps for trace in expected]
    assert told[:8] == ["asked"] * 4 + ["waited"] * 4


def test_the_highest_scores_are_found_by_blocks_as_by_looking_at_all() -> None:
    torch.manual_seed(0)
    scores = torch.randn(3, 5 * 49_152 // 3)
    best = [scores.gather(-1, way(scores, 10)) for way in (highest, most)]
    assert torch.equal(*best)
